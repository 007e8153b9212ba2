import json

from common.flags import command_line
from config import Config
from testing import untrained
from training import run_report
from training.best import Evaluation
from training.train import Clock


def test_a_report_of_a_resumed_training(tmp_path):
    timer = Clock(batch_size=8, seconds=5.0)
    for _ in range(2):
        timer.lap(1)
        timer.point()
    network, _ = untrained.small()
    config = Config(max_steps=7, batch_size=8, summary_dir=str(tmp_path))
    path = tmp_path / "run.json"
    run_report.write(path, config, network, 6, timer, None)
    report = json.loads(path.read_text())
    weights = sum(w.numpy().size for w in network.trainable_weights)
    of_decoder = sum(w.numpy().size for w in network.decoder.weights)
    assert 0 < of_decoder < weights
    expected = {
        "command": f"python experiment.py {command_line(config)}",
        "weights": weights,
        "weights_without_decoder": weights - of_decoder,
        "multiply_adds": network.multiply_adds(),
        "steps": 6,
        "batch_size": 8,
        "seconds": timer.seconds,
        "images_per_second": timer.images_per_second,
    }
    assert {name: report[name] for name in expected} == expected
    assert report["peak_megabytes"] > 50
    assert report["machine"]["backend"].startswith("tensorflow ")
    assert report["machine"]["cores"] >= 1
    network, _ = untrained.small("pooling")  # without decoder
    run_report.write(
        path, config, network, 7, Clock(8), Evaluation(1, 0.5, 4, 9)
    )
    report = json.loads(path.read_text())
    assert report["weights"] == report["weights_without_decoder"]
    assert report["images_per_second"] is None
    found = {"wrong": 1, "loss": 0.5, "step": 4, "num_examples": 9}
    assert report["best"] == found
