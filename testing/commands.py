"""Runs commands as processes."""

import contextlib
import os
import pathlib
import runpy
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]


def start(*arguments, **keywords):
    """Starts Python in the project's folder, with pipes for its output."""
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **{"cwd": ROOT, **keywords},
    )


def finish(process):
    """Returns exit status, output and errors within ten minutes."""
    try:
        output, errors = process.communicate(timeout=600)
    finally:
        process.kill()
    return process.returncode, output, errors


def run(*arguments, **keywords):
    """Starts and finishes a process."""
    return finish(start(*arguments, **keywords))


def output_of(*arguments, **keywords):
    """The output of a process that must succeed."""
    code, output, errors = run(*arguments, **keywords)
    assert code == 0, errors
    return output


def run_here(program, *arguments):
    """Runs a command in this process; returns its exit status."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", [program, *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            runpy.run_path(str(ROOT / program), run_name="__main__")
    return stop.value.code


@contextlib.contextmanager
def full_disk():
    """Nothing can be written to standard output and standard error."""
    if not os.path.exists("/dev/full"):
        pytest.skip("the system has no /dev/full")
    with (
        open("/dev/full", "w") as output,
        open("/dev/full", "w") as errors,
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(errors),
    ):
        yield
