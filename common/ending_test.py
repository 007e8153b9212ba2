import os
import signal
import subprocess
import sys

import pytest

# Each prints less than a buffer holds: the end of the program would write it.
PROGRAM = """
from common.ending import told
from common.errors import Interrupted, UserError
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
