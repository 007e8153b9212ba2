import os
import signal
import subprocess
import sys

# Less than a buffer holds: the end of the program would write it.
PROGRAM = """
from common.ending import told
with told("x.py"):
    print("seen by nobody")
"""


def test_a_reader_that_has_gone_is_no_error(pytestconfig):
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        stdout=writer,
        stderr=subprocess.PIPE,
        cwd=pytestconfig.rootpath,
    )
    os.close(writer)
    assert done.returncode == 128 + signal.SIGPIPE
    assert done.stderr == b""
