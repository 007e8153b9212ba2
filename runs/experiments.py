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
    """A row of experiments.csv.

    Attributes:
      name: string, the argument of reproduce.py.
      title: string, data and network.
      published: float, published test error in percent, or None.
      source: string, who published it.
      dataset: string, `--dataset`, also the folder in `--data_dir`.
      steps: int, `--max_steps`.
      hparams: string, `--hparams_override`.
      flags: string, other flags of experiment.py.
      members: int, networks of a published ensemble, with the seeds from 0.
      other_test: string, a key of `OTHER_TESTS`, or "".
      other_published: float, its published error in percent, or None.
      in_short: bool, whether the README's table shows it.
    """

    name: str
    title: str
    published: float | None
    source: str
    dataset: str
    steps: int
    hparams: str
    flags: str
    members: int
    other_test: str
    other_published: float | None
    in_short: bool

    def figure(self, error):
        """A published error with its source."""
        return (
            "not published" if error is None else f"{error:g} % ({self.source})"
        )


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
