"""Options of the tests."""

import importlib.util
import os

import pytest

from testing.patience import within_seconds

# As old/startup.py sets it for the commands, before TensorFlow is imported.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
collect_ignore = []
if importlib.util.find_spec("apache_beam") is None:
    collect_ignore.append("input_data/mnist/mnist_shift_beam_test.py")


def pytest_addoption(parser):
    """Adds --kills."""
    parser.addoption(
        "--kills",
        type=int,
        default=4,
        help="how often the test of killed trainings kills one",
    )


@pytest.fixture
def in_time():
    """Ends a test that waits for what never comes."""
    with within_seconds(120):
        yield


@pytest.fixture
def no_pictures(monkeypatch):
    """Leaves out what evaluations draw, which takes longer than they do."""
    monkeypatch.setattr("evaluation.pictures.draw", lambda *_: {})
    monkeypatch.setattr("evaluation.learning_curve.write", lambda _: None)


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
