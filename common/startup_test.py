import os
import subprocess
import sys

import pytest

PROGRAM = """
import os, sys
sys.path.insert(0, {root!r})
from common import startup

startup.os.path.exists = lambda path: False  # no GPU's driver
with startup._without_harmless_lines():
    os.write(2, b"WARNING: All log messages before absl::InitializeLog() is\\n")
    os.write(2, b"E0000 00:00:1.2 3 cuda_platform.cc:52] call to cuInit\\n")
    os.write(2, b"E0000 00:00:1.2 3 memory.cc:7] out of memory\\n")
    {end}
os.write(2, b"E0000 00:00:1.2 3 cuda_platform.cc:52] later\\n")
"""


@pytest.mark.parametrize(
    ("end", "code", "later"),
    [("pass", 0, True), ("os.abort()", -6, False), ("1 / 0", 1, False)],
)
def test_only_harmless_lines_are_left_out(pytestconfig, end, code, later):
    program = PROGRAM.format(root=str(pytestconfig.rootpath), end=end)
    result = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == code
    assert "out of memory" in result.stderr
    assert "cuInit" not in result.stderr
    assert "All log messages" not in result.stderr
    assert ("later" in result.stderr) == later
    assert ("ZeroDivisionError" in result.stderr) == (end == "1 / 0")


def test_a_backend_that_is_none_of_ours_is_named(pytestconfig):
    program = "from common import startup; startup.load_backend()"
    result = subprocess.run(
        [sys.executable, "-c", program],
        cwd=pytestconfig.rootpath,
        env={**os.environ, "KERAS_BACKEND": "numpy"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "KERAS_BACKEND=numpy cannot be used: it must be" in result.stderr
