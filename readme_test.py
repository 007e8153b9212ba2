import pathlib
import re

import numpy as np

README = pathlib.Path(__file__).with_name("README.md")


def test_the_library_part_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {
        "images": np.zeros((2, 28, 28, 1), "float32"),
        "labels": np.eye(10)[:2],
    }
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert blocks
    small = "num_classes=10, conv_channels=4, num_prime_capsules=2"
    for block in blocks:
        exec(block.replace("num_classes=10", small), names)
    assert names["network"].output_shape == (None, 10)
