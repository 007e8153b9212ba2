import json
import pathlib
import sys

import matplotlib.pyplot as plt
import pytest

from input_data.datasets import digits

FOLDER = pathlib.Path(__file__).parent
NOTEBOOK = FOLDER / "digits.ipynb"


@pytest.mark.slow
def test_the_notebook_runs_from_top_to_bottom(capsys, monkeypatch):
    read = digits.read_split
    monkeypatch.setattr(digits, "read_split", lambda split: read(split)[:64])
    monkeypatch.setattr(sys, "path", [*sys.path])
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    sources = ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]
    assert sum("epochs = 10" in source for source in sources) == 1
    monkeypatch.chdir(FOLDER)
    plt.switch_backend("agg")
    names = {}
    for source in sources:
        exec(source.replace("epochs = 10", "epochs = 1"), names)
    figures = [plt.figure(number) for number in plt.get_fignums()]
    plt.close("all")
    assert [len(figure.axes) for figure in figures] == [
        2 * len(names["shown"]),
        4 * len(names["steps"]),
    ]
    assert all(axes.images for figure in figures for axes in figure.axes)
    assert " of 64 are wrong: " in capsys.readouterr().out
    assert names["loaded"].count_params() == names["network"].count_params()
