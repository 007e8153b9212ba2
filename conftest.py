"""Options of the tests."""

import importlib.util
import os
import signal

import pytest

# As common/startup.py sets it for the commands, before TensorFlow is imported.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
collect_ignore = []
if importlib.util.find_spec("apache_beam") is None:
    collect_ignore.append("input_data/generators/beam_test.py")


def pytest_addoption(parser):
    """Adds --kills."""
    parser.addoption(
        "--kills",
        type=int,
        default=4,
        help="how often the test of killed trainings kills one",
    )


class Hangs(BaseException):
    """A test that must not wait has waited; no error that code may expect."""


@pytest.fixture
def in_time():
    """Ends a test that waits for what never comes."""

    def end(number, frame):
        raise Hangs

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(120)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def pytest_make_parametrize_id(val, argname):
    """Leaves bytes out of the names of tests.

    The content of records and gzip files is not the same in all processes,
    between which -n divides tests by their names.
    """
    return argname if isinstance(val, bytes) else None


def pytest_collection_modifyitems(config, items):
    """Leaves out tests of backends that are not installed.

    They have no parameters then, which pytest would count as skipped.
    """
    empty = [
        item
        for item in items
        if any(
            mark.kwargs.get("reason", "").startswith("got empty parameter set")
            for mark in item.iter_markers("skip")
        )
    ]
    if empty:
        config.hook.pytest_deselected(items=empty)
        items[:] = [item for item in items if item not in empty]
