"""The commands that write data files, as users start them."""

import os
import pathlib
import subprocess
import sys

import pytest

FOLDER = pathlib.Path(__file__).parent
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
    ("script", "flag"),
    [
        ("mnist/mnist_shift.py", "--shift=-1"),
        ("norb/norb_convert.py", "--novel=lighting"),
        (AFFNIST, "--copies=0"),
    ],
)
def test_a_wrong_flag_is_one_line(tmp_path, script, flag):
    result = run(tmp_path, script, flag, "--data_dir=.")
    (message,) = result.stderr.splitlines()
    assert result.returncode == 1
    assert message.startswith(f"{pathlib.Path(script).name}: ")
    assert flag.partition("=")[0].strip("-") in message


@pytest.mark.slow
def test_writes_affnist(tmp_path):
    result = run(
        tmp_path, AFFNIST, "--dataset=digits", "--copies=1", "--output_dir=out"
    )
    assert result.returncode == 0, result.stderr
    assert "test.mat: 360 images" in result.stdout
    assert (tmp_path / "out" / "test.mat").is_file()
