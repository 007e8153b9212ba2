"""The commands that write data files, as users start them."""

import os
import pathlib
import subprocess
import sys

import pytest

FOLDER = pathlib.Path(__file__).parent
SHIFT = "mnist/mnist_shift.py"
NORB = "norb/norb_convert.py"
AFFNIST = "affnist/affnist_generate.py"


def run(folder, script, *flags):
    """The completed process of a command in a folder."""
    return subprocess.run(
        [sys.executable, str(FOLDER / script), *flags],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        cwd=folder,
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    ("script", "flags", "name"),
    [
        (SHIFT, ["--data_dir=missing"], "missing"),
        (NORB, ["--data_dir=.", "--output_dir=out"], "--data_dir"),
        (AFFNIST, ["--output_dir=out", "--data_dir=."], "idx3-ubyte"),
    ],
)
def test_a_wrong_flag_or_folder_is_one_line(tmp_path, script, flags, name):
    result = run(tmp_path, script, *flags)
    assert result.returncode == 1
    (message,) = (
        line
        for line in result.stderr.splitlines()
        if line.startswith(f"{pathlib.Path(script).name}: ")
    )
    assert name in message
    assert "Traceback" not in result.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_writes_affnist(tmp_path):
    result = run(
        tmp_path, AFFNIST, "--dataset=digits", "--copies=1", "--output_dir=out"
    )
    assert result.returncode == 0, result.stderr
    assert "test.mat: 360 images" in result.stdout
    assert (tmp_path / "out" / "test.mat").is_file()
