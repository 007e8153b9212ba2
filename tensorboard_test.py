"""A real TensorBoard shows what training and evaluation write."""

import contextlib
import json
import re
import subprocess
import sys
import time
import urllib.request

import pytest

import experiment
from testing.small_models import overrides
from training.config import Config

WEIGHTS = [
    f"{layer}/{kind}"
    for layer in (
        "conv1",
        "conv_capsule1",
        "capsule2",
        *(f"recons/recons_{number}" for number in (1, 2, 3)),
    )
    for kind in ("weights", "biases")
]
LAYERS = ("conv1", "conv_capsule1", "capsule2")
SCALARS = {
    "train": {
        "accuracy",
        "almost_correct_batch",
        "batch_classification_cost",
        "correct_prediction_batch",
        "images_per_second",
        "learning_rate",
        "loss",
        "reconstruction_error",
        "total_loss",
        *(f"{layer}/sparsity" for layer in LAYERS),
        *(
            f"{weight}/{statistic}"
            for weight in WEIGHTS
            for statistic in ("mean", "stddev", "min", "max")
        ),
    },
    "test": {
        "accuracy",
        "almost_wrong_prediction",
        "correct_prediction",
        "loss",
        "wrong_prediction",
    },
}
HISTOGRAMS = {
    "train": {
        *(f"{weight}/histogram" for weight in WEIGHTS),
        *(f"{layer}/activation" for layer in LAYERS),
    }
}
IMAGES = {
    "train": {"reconstruction"},
    "test": {"confusion_matrix", "wrong_predictions"},
}
SECONDS_TO_START = 120
SECONDS_TO_LOAD = 60


@contextlib.contextmanager
def tensorboard(folder):
    """The address of a TensorBoard process that shows a folder."""
    with subprocess.Popen(
        [
            *(sys.executable, "-m", "tensorboard.main"),
            *("--logdir", folder, "--host", "127.0.0.1", "--port", "0"),
        ],
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            said = []
            for line in process.stderr:
                said.append(line)
                if match := re.search(r"at (http://127\.0\.0\.1:\d+/)", line):
                    break
            else:
                raise AssertionError(f"no TensorBoard: {''.join(said)}")
            yield match[1]
        finally:
            process.kill()


def ask(address, path, question=None):
    """What the HTTP API answers, from JSON; a question is posted."""
    request = urllib.request.Request(address + path)
    if question is not None:
        request.data = json.dumps(question).encode()
        request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=SECONDS_TO_START) as answer:
        return json.load(answer)


def tags(address, plugin):
    answer = ask(address, f"data/plugin/{plugin}/tags")
    return {run: set(names) for run, names in answer.items() if names}


@pytest.mark.slow
def test_every_tag_is_listed(tmp_path):
    experiment.run(
        Config(
            summary_dir=str(tmp_path),
            hparams_override=overrides("capsule", routing=2, verbose=True),
            batch_size=4,
            max_steps=10,
            summary_step=1,
        )
    )
    experiment.run(Config(train=False, summary_dir=str(tmp_path)))
    with tensorboard(tmp_path) as address:
        deadline = time.monotonic() + SECONDS_TO_LOAD
        # It loads one folder after the other.
        while tags(address, "images") != IMAGES:
            assert time.monotonic() < deadline, tags(address, "images")
            time.sleep(0.2)
        assert tags(address, "scalars") == SCALARS
        assert tags(address, "histograms") == HISTOGRAMS
        points = ask(
            address, "data/plugin/scalars/scalars?run=train&tag=learning_rate"
        )
        assert [step for _, step, _ in points] == list(range(1, 11))
        assert points[-1][2] == pytest.approx(
            0.001 * 0.96 ** (10 / 2000), rel=1e-6
        )

        columns = ask(address, "data/plugin/hparams/experiment", {})
        assert {"routing", "learning_rate", "seed", "model"} <= {
            column["name"] for column in columns["hparamInfos"]
        }
        table = ask(
            address,
            "data/plugin/hparams/session_groups",
            {
                "allowedStatuses": ["STATUS_UNKNOWN"],
                "colParams": [],
                "sliceSize": 10,
                "startIndex": 0,
            },
        )
        rows = {row["name"].split()[0]: row for row in table["sessionGroups"]}
        assert set(rows) == {f"{tmp_path.name}/{part}" for part in SCALARS}
        for part, names in SCALARS.items():
            row = rows[f"{tmp_path.name}/{part}"]
            assert row["hparams"]["routing"] == 2
            last = {
                metric["name"]["tag"]: metric["value"]
                for metric in row["metricValues"]
            }
            assert set(last) == names
            # Each part's own, not the mean of all.
            _, _, accuracy = ask(
                address, f"data/plugin/scalars/scalars?run={part}&tag=accuracy"
            )[-1]
            assert last["accuracy"] == accuracy
