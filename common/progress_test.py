import sys

import pytest

from common import progress
from common.progress import Progress


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test moves."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_lines_come_now_and_then_and_at_the_end(capsys, clock):
    shown = Progress(40, 100)
    for step in range(41, 101):
        clock[0] += 0.5
        shown.update(step, {"loss": step / 1000})
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "step 60/100 - loss: 0.0600 - 2 steps/s",
        "step 80/100 - loss: 0.0800 - 2 steps/s",
        "step 100/100 - loss: 0.1000 - 2 steps/s",
    ]


def test_a_terminal_gets_a_bar_of_what_is_left(capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    shown = Progress(40, 42)
    shown.update(41, {"loss": 3.0})
    shown.update(42, {"loss": 1.0})
    output = capsys.readouterr().out
    assert "1/2" in output
    assert "2/2" in output
    # The last value, not the mean of all.
    assert "loss: 1.0000" in output
    assert "\n" in output


def test_another_stream_leaves_standard_output_alone(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    bar = Progress(0, 2, stream=sys.stderr)
    bar.update(1, {})
    bar.clear()
    bar.update(2, {})
    monkeypatch.undo()
    lines = Progress(0, 2, stream=sys.stderr)
    lines.clear()
    lines.update(2, {})
    output, errors = capsys.readouterr()
    assert output == ""
    half, cleared, done = errors.partition("\r\x1b[K")
    assert cleared
    assert "1/2" in half
    assert "2/2" in done
    assert "step 2/2 - " in errors.splitlines()[-1]
