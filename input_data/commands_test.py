"""The commands that write data files, as users start them."""

import pathlib

import pytest

from testing.commands import run

FOLDER = pathlib.Path(__file__).parent
AFFNIST = "affnist/affnist_generate.py"


@pytest.mark.parametrize(
    ("script", "flag"),
    [
        ("mnist/mnist_shift.py", "--shift=-1"),
        ("norb/norb_convert.py", "--novel=lighting"),
        (AFFNIST, "--copies=0"),
    ],
)
def test_a_wrong_flag_is_one_line(tmp_path, script, flag):
    code, _, errors = run(FOLDER / script, flag, "--data_dir=.", cwd=tmp_path)
    (message,) = errors.splitlines()
    assert code == 1
    assert message.startswith(f"{pathlib.Path(script).name}: ")
    assert flag.partition("=")[0].strip("-") in message


@pytest.mark.slow
def test_writes_affnist(tmp_path):
    flags = "--dataset=digits", "--copies=1", "--output_dir=out"
    code, output, errors = run(FOLDER / AFFNIST, *flags, cwd=tmp_path)
    assert code == 0, errors
    assert "test.mat: 360 images" in output
    assert (tmp_path / "out" / "test.mat").is_file()
