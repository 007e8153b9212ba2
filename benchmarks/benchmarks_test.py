import json
import os

import keras
import pytest

from benchmarks import convolution_benchmark, train_benchmark, utils
from testing import commands


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


@pytest.mark.slow
def test_accelerator_needs_jax_and_keras_alone(tmp_path):
    pytest.importorskip("jax")
    code = """import sys
sys.modules["tensorflow"] = None
from benchmarks import accelerator_benchmark
accelerator_benchmark.MATRIX = 64
accelerator_benchmark.main(sys.argv[1:])"""
    file = tmp_path / "result.json"
    override = "--hparams_override=num_prime_capsules=2,conv_channels=2"
    flags = ("--batch_size=2", "--steps=1", override, f"--json={file}")
    environment = {**os.environ, "KERAS_BACKEND": "jax"}
    code, _, errors = commands.run("-c", code, *flags, env=environment)
    assert code == 0, errors
    rows = json.loads(file.read_text())["rows"]
    assert len(rows) == 4 * 3 + 2 + 2  # layers, others, steps
    assert all(row["ms"] > 0 for row in rows)
