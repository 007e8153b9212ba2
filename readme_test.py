import pathlib
import re

import numpy as np

import experiment
from testing.small_models import overrides
from training.config import Config

README = pathlib.Path(__file__).with_name("README.md")
PREDICT = README.with_name("docs") / "predict.md"


def python_blocks(page):
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    assert blocks
    return blocks


def test_a_checkpoint_in_python(tmp_path, capsys):
    config = Config(
        batch_size=16,
        hparams_override=overrides("capsule"),
        max_steps=2,
        summary_dir=str(tmp_path),
    )
    experiment.run(config)
    capsys.readouterr()
    names = {}
    *_, block = python_blocks(PREDICT)
    exec(block.replace("/tmp/digits", str(tmp_path)), names)
    plain, turned, attacked = map(int, capsys.readouterr().out.split()[-3:])
    assert plain < attacked
    assert 0 < turned <= 100
    assert names["couplings"].shape == (3, 100, 6, 6, 2, 10)
    np.testing.assert_allclose(np.sum(names["couplings"], -1), 1, rtol=1e-5)
    assert names["outputs"]["capsules"].shape == (100, 10, 5)


def test_the_library_part_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {
        "images": np.zeros((2, 28, 28, 1), "float32"),
        "labels": np.eye(10)[:2],
    }
    small = "num_classes=10, conv_channels=4, num_prime_capsules=2"
    for block in python_blocks(README):
        exec(block.replace("num_classes=10", small), names)
    assert names["network"].output_shape == (None, 10)
