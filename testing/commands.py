"""The commands as processes: for tests only."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[1]


def start(*arguments, **keywords):
    """A process of Python in the project's folder, whose output is kept."""
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **keywords,
    )


def finish(process, timeout=600):
    """Exit code, output and errors; what takes longer is ended."""
    try:
        output, errors = process.communicate(timeout=timeout)
    finally:
        process.kill()
    return process.returncode, output, errors


def run(*arguments, **keywords):
    """The same of a process that is started for it."""
    return finish(start(*arguments, **keywords))
