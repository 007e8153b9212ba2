import json
import os

import pytest

from benchmarks import train_benchmark
from common import flags
from testing import commands


@pytest.mark.parametrize("flag", ["--batch_size=2", "--inference"])
def test_training_and_inference(monkeypatch, flag):
    monkeypatch.setattr(
        train_benchmark, "in_own_process", lambda f, *args: f(*args)
    )
    override = "--hparams_override=num_prime_capsules=2,conv_channels=2"
    blocks = ("--rounds=1", "--steps=1")
    sizes = ("--batch_size=2", "--image_size=20", "--policies=float32")
    arguments = [*blocks, override, *sizes, flag]
    settings = flags.parse(train_benchmark.Settings, arguments)
    rows = list(train_benchmark.measure(settings))
    assert [row["network"] for row in rows] == ["convolutions", "capsule"]
    assert rows[0]["of convolutions"] == 1
    assert rows[1]["of convolutions"] > 0


@pytest.mark.slow
def test_accelerator_needs_jax_and_keras_alone(tmp_path):
    pytest.importorskip("jax")
    code = """import sys
sys.modules["tensorflow"] = None
from benchmarks import accelerator_benchmark
accelerator_benchmark.MATRIX = 64
small = {"num_prime_capsules": 2, "conv_channels": 2}
hparams_class = accelerator_benchmark.find_model("capsule").hparams
accelerator_benchmark.HPARAMS = hparams_class(**small)
accelerator_benchmark.main(sys.argv[1:])"""
    file = tmp_path / "result.json"
    flags = ("--batch_size=2", "--steps=1", f"--json={file}")
    environment = {**os.environ, "KERAS_BACKEND": "jax"}
    commands.output_of("-c", code, *flags, env=environment)
    rows = json.loads(file.read_text())["rows"]
    assert len(rows) == 4 * 3 + 2 + 2  # layers, others, steps
    assert all(row["ms"] > 0 for row in rows)
