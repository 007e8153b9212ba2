import json

import keras
import numpy as np
import pytest
from keras import ops

from benchmarks import (
    convolution_benchmark,
    em_benchmark,
    train_benchmark,
    utils,
)
from input_data import features as keys
from models.matrix_capsule import HParams, MatrixCapsuleModel


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs a benchmark with flags in this process; returns its rows."""
    monkeypatch.setattr(utils, "in_own_process", lambda f, *args: f(*args))
    policy = keras.config.dtype_policy()
    file = tmp_path / "result.json"

    def run_benchmark(benchmark, *flags):
        flags = ["--rounds=1", "--steps=1", *flags, f"--json={file}"]
        utils.run(benchmark.measure, benchmark.FLAGS, "", flags)
        return json.loads(file.read_text())["rows"]

    yield run_benchmark
    keras.config.set_dtype_policy(policy)


@pytest.mark.parametrize("flag", ["--batch_size=2", "--inference"])
def test_training_and_inference(run, flag):
    override = "--hparams_override=num_prime_capsules=2,conv_channels=2"
    sizes = ("--batch_size=2", "--image_size=20", "--policies=float32")
    rows = run(train_benchmark, override, *sizes, flag)
    assert [row["network"] for row in rows] == ["convolutions", "capsule"]
    assert rows[0]["of convolutions"] == 1
    assert rows[1]["of convolutions"] > 0


@pytest.mark.parametrize(
    ("flags", "tiles"),
    [(["--inference"], ["6x2"]), (["--tiles"], ["6x6", "3x3", "2x2"])],
)
def test_convolutions(run, flags, tiles):
    sizes = ("size=8", "channels=2", "kernel=3", "filters=2", "stride=1")
    sizes = [f"--{size}" for size in (*sizes, "batch=2")]
    rows = run(convolution_benchmark, *sizes, *flags)
    assert [row["tile"] for row in rows] == tiles
    assert all(row["measured"] > 0 and row["expected"] > 0 for row in rows)


def test_the_naive_matrix_capsules_compute_the_same():
    shape = keys.ImageShape(14, 14, 1, 3)
    hparams = HParams(
        conv_channels=4,
        primary_types=2,
        first_types=3,
        second_types=2,
        padding="SAME",
        conv_lambda=1.0,
        class_lambda=1.0,
    )
    ours = MatrixCapsuleModel(shape, 1, hparams)
    naive = em_benchmark.NaiveMatrixCapsules(shape, 1, hparams)
    for model in (ours, naive):
        model.create_weights(shape)
    naive.set_weights(ours.get_weights())
    x = np.random.default_rng(0).normal(size=(2, 14, 14, 1)).astype("float32")
    ours, naive = (model({keys.IMAGES: x}) for model in (ours, naive))
    for name in ours:
        np.testing.assert_allclose(
            *(ops.convert_to_numpy(o[name]) for o in (naive, ours)), atol=1e-5
        )
