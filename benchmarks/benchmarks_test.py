import pytest

from benchmarks import train_benchmark
from common import flags


@pytest.mark.parametrize("flag", ["--batch_size=2", "--inference"])
def test_training_and_inference(monkeypatch, flag):
    monkeypatch.setattr(
        train_benchmark, "in_own_process", lambda f, *args: f(*args)
    )
    override = "--hparams_override=num_prime_capsules=2,conv_channels=2"
    blocks = ("--rounds=1", "--steps=1")
    sizes = ("--batch_size=2", "--image_size=20", "--policies=float32")
    arguments = [*blocks, override, *sizes, flag]
    settings = flags.parse(train_benchmark.BenchmarkFlags, arguments)
    rows = list(train_benchmark.measure(settings))
    assert [row["network"] for row in rows] == ["convolutions", "capsule"]
    assert rows[0]["of convolutions"] == 1
    assert rows[1]["of convolutions"] > 0
