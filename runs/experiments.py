"""Published results and the trainings that reproduce them."""

import csv
import dataclasses
import pathlib

# Flags of evaluations on other images than those of the training.
OTHER_TESTS = {
    "pairs below each other": "--num_targets=2 --pairs=below",
    "affNIST": "--dataset=affnist --eval_size=320000",
}


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A row of experiments.csv."""

    name: str
    title: str  # data and network
    published: float | None  # test error in percent
    source: str  # of the published error
    dataset: str
    steps: int
    hparams: str  # --hparams_override
    flags: str  # other flags of experiment.py
    members: int  # networks of a published ensemble, with the seeds from 0
    other_test: str  # a key of OTHER_TESTS, or ""
    other_published: float | None
    in_short: bool  # whether the README shows it

    def published_text(self, error):
        """A published error with its source."""
        if error is None:
            return "not published"
        return f"{error:g} % ({self.source})"


def _read():
    path = pathlib.Path(__file__).with_suffix(".csv")
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            for name in ("published", "other_published"):
                row[name] = float(row[name]) if row[name] else None
            for name in ("steps", "members"):
                row[name] = int(row[name])
            row["in_short"] = row["in_short"] == "yes"
            yield Experiment(**row)


EXPERIMENTS = {experiment.name: experiment for experiment in _read()}
