import os
import signal
import sys
import time

import pytest

from old import processes
from testing import commands

# Ctrl-C as usual, also where the tests were started by a shell with "&".
PROGRAM = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from old import processes_test
from old.processes import in_own_process
in_own_process(processes_test.wait, {path!r})
"""


def wait(path):
    """Writes down which process it is, and of its end by SIGTERM."""

    def stop(number, frame):
        with open(path, "a") as file:
            file.write("stopped\n")
        sys.exit()

    signal.signal(signal.SIGTERM, stop)
    with open(path, "w") as file:
        file.write(f"{os.getpid()}\n")
    time.sleep(60)


def lines_of(path, count):
    """The lines of a file, once there are so many."""
    deadline = time.monotonic() + 50
    while time.monotonic() < deadline:
        lines = path.read_text().splitlines() if path.exists() else []
        if len(lines) == count:
            return lines
        time.sleep(0.05)
    pytest.fail(f"there are not {count} lines in {path}")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_process_ends_with_the_one_that_started_it(tmp_path, number):
    path = tmp_path / "told"
    with commands.start("-c", PROGRAM.format(path=str(path))) as process:
        lines_of(path, 1)
        process.send_signal(number)
        assert lines_of(path, 2)[1] == "stopped"
        process.communicate()


def test_what_it_gives():
    assert processes.in_own_process(divmod, 17, 5) == (3, 2)
