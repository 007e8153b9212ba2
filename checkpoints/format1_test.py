"""Checkpoints of format 1 as its first version wrote them: they load forever.

`testdata/model.ckpt-200` is of 200 steps on the embedded digits; its writer
evaluated it, and went on from it to step 202, with the numbers of
`expected.json`.
"""

import json
import pathlib
import shutil

import numpy as np
import pytest

from evaluation.jobs import evaluate_once
from testing.saved_arrays import saved
from training.config import Config
from training.train import train

TESTDATA = pathlib.Path(__file__).parent / "testdata"
EXPECTED = json.loads((TESTDATA / "expected.json").read_text())
HPARAMS = (
    "conv_channels=4,num_prime_capsules=2,class_atoms=4,primary_atoms=2,"
    "remake=false,learning_rate=0.02,leaky=true"
)


def wrong(path):
    config = Config(train=False, checkpoint=str(path))
    return evaluate_once(config).wrong


def test_it_evaluates_to_the_same_count():
    path = TESTDATA / "model.ckpt-200"
    assert wrong(path) == EXPECTED["wrong"]["200"]


def test_a_training_goes_on_from_it_as_it_did(tmp_path, capsys):
    """The same numbers, but for rounding: by another processor, say."""
    source = TESTDATA / "model.ckpt-200"
    shutil.copytree(source, tmp_path / "train" / source.name)
    config = Config(
        summary_dir=str(tmp_path),
        hparams_override=HPARAMS,
        max_steps=202,
        batch_size=32,
        seed=3,
    )
    train(config)
    output = capsys.readouterr().out
    assert f"Resuming from {tmp_path}/train/model.ckpt-200" in output
    path = tmp_path / "train" / "model.ckpt-202"
    sums = {
        name: np.abs(array.astype(float)).sum()
        for name, array in saved(path).items()
    }
    expected = EXPECTED["sum of absolute values at step 202"]
    assert sums == pytest.approx(expected, rel=1e-4)
    assert wrong(path) == EXPECTED["wrong"]["202"]
