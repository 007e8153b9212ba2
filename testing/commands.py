"""The commands as processes: for tests and benchmarks only."""

import contextlib
import pathlib
import re
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


@contextlib.contextmanager
def served(checkpoint, *flags):
    """The address at which a process of demo.py serves the page."""
    arguments = f"--checkpoint={checkpoint}", "--port=0", *flags
    with start("demo.py", *arguments) as process:
        try:
            line = process.stdout.readline()
            found = re.fullmatch(r"Open (http://\S+:\d+/) \(Ctrl-C.*\n", line)
            assert found, line or process.stderr.read()
            yield found[1]
        finally:
            process.kill()
