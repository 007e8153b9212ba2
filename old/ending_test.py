import os
import pathlib
import signal
import subprocess
import sys

import pytest

from old.ending import told

# Each prints less than a buffer holds: the end of the program would write it.
PROGRAM = """
from old.ending import told
from old.errors import Interrupted, UserError
with told("x.py"):
    print("seen by nobody", flush={flush})
    {then}
"""


@pytest.mark.parametrize(
    ("flush", "then", "code", "is_all_closed"),
    [
        (False, "pass", 0, False),
        (True, "pass", 128 + signal.SIGPIPE, False),
        (False, "raise UserError('wrong')", 1, False),
        (False, "raise Interrupted('stopped', 15)", 128 + 15, False),
        (False, "raise Interrupted('stopped', 15)", 128 + 15, True),
    ],
)
def test_a_reader_that_has_gone(pytestconfig, flush, then, code, is_all_closed):
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(flush=flush, then=then)],
        stdout=writer,
        stderr=writer if is_all_closed else subprocess.PIPE,
        text=True,
        cwd=pytestconfig.rootpath,
        env={**os.environ, "PYTHONUNBUFFERED": ""},
    )
    os.close(writer)
    assert done.returncode == code
    if not is_all_closed:
        told = {1: "x.py: wrong\n", 143: "stopped\nGo on by: python -c\n"}
        assert done.stderr == told.get(code, "")


@pytest.mark.parametrize(
    ("flush", "then", "code"),
    [
        (False, "pass", 1),
        (True, "pass", 1),
        (False, "print('x' * 100_000)", 1),
        (False, "raise Interrupted('stopped', 15)", 128 + 15),
    ],
)
def test_a_full_disk_is_told(pytestconfig, flush, then, code):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM.format(flush=flush, then=then)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            cwd=pytestconfig.rootpath,
            env={**os.environ, "PYTHONUNBUFFERED": ""},
        )
    assert done.returncode == code
    full = "x.py: standard output cannot be written: No space left on device\n"
    assert done.stderr == (
        full if code == 1 else "stopped\nGo on by: python -c\n"
    )


def test_an_error_of_another_file_is_no_matter_of_standard_output():
    with pytest.raises(FileNotFoundError), told("x.py"):
        pathlib.Path("/nowhere/at/all").read_text()
