"""The content of run.json."""

import json
import time

from common.flags import command_line
from config import Config
from models.graph import multiply_adds
from testing import untrained
from training import clock, run_report


def test_a_report_of_a_resumed_training(tmp_path, monkeypatch):
    now = iter([0, 2, 2, 10, 10])
    monkeypatch.setattr(time, "monotonic", lambda: next(now))
    timer = clock.Clock(batch_size=8, seconds=5.0)
    timer.lap(1)
    timer.point()
    timer.lap(2)
    monkeypatch.undo()
    network, architecture = untrained.small()
    config = Config(max_steps=7, batch_size=8, summary_dir=str(tmp_path))
    path, shape = tmp_path / "run.json", architecture.shape
    run_report.write(path, config, network, shape, timer)
    report = json.loads(path.read_text())
    weights = sum(w.numpy().size for w in network.trainable_weights)
    of_decoder = sum(w.numpy().size for w in network.decoder.weights)
    assert 0 < of_decoder < weights
    expected = {
        "command": f"python experiment.py {command_line(config)}",
        "weights": weights,
        "weights_without_decoder": weights - of_decoder,
        "multiply_adds": multiply_adds(network, shape),
        "steps": 7,
        "batch_size": 8,
        "seconds": 15.0,
        "images_per_second": 24 / 10,
    }
    assert {name: report[name] for name in expected} == expected
    assert report["peak_megabytes"] > 50
    assert report["machine"]["backend"].startswith("tensorflow ")
    assert report["machine"]["cores"] >= 1


def test_a_network_without_decoder(tmp_path):
    network, architecture = untrained.small("pooling")
    config = Config(summary_dir=str(tmp_path))
    path, timer = tmp_path / "run.json", clock.Clock(batch_size=8)
    run_report.write(path, config, network, architecture.shape, timer)
    report = json.loads(path.read_text())
    assert report["weights"] == report["weights_without_decoder"]
    assert report["images_per_second"] is None
