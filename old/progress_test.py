import os
import sys

import pytest

from old import progress
from old.progress import Progress


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
        "step 60/100 - loss: 0.0600 - 2 steps/s - 20 s left",
        "step 80/100 - loss: 0.0800 - 2 steps/s - 10 s left",
        "step 100/100 - loss: 0.1000 - 2 steps/s",
    ]


def test_the_work_goes_on_when_its_reader_has_gone(clock):
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w", buffering=1) as stream:
        shown = Progress(0, 9, stream=stream)
        for step in range(1, 10):
            clock[0] += 60
            shown.update(step, {})
        print("nor does what is printed then fail", file=stream, flush=True)


def test_a_terminal_gets_one_line_that_counts_as_a_pipe_does(
    capsys, monkeypatch, clock
):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    shown = Progress(40, 160)
    for step in (41, 42, 160):
        clock[0] += 0.06
        shown.update(step, {"loss": step / 1000})
    # Not more than ten changes a second.
    assert capsys.readouterr().out == (
        "\r\x1b[Kstep 42/160 - loss: 0.0420 - 16.7 steps/s - 7 s left"
        "\r\x1b[Kstep 160/160 - loss: 0.1600 - 667 steps/s\n"
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(4.4, "4 s"), (89, "89 s"), (600, "10 min"), (12_000, "3 h 20 min")],
)
def test_durations(seconds, text):
    assert progress.as_duration(seconds) == text


def test_another_stream_leaves_standard_output_alone(
    capsys, monkeypatch, clock
):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    bar = Progress(0, 2, stream=sys.stderr)
    clock[0] += 1
    bar.update(1, {})
    bar.clear()
    bar.update(2, {})
    monkeypatch.undo()
    lines = Progress(0, 2, stream=sys.stderr)
    lines.clear()
    lines.update(2, {})
    output, errors = capsys.readouterr()
    assert output == ""
    assert errors.startswith(
        "\r\x1b[Kstep 1/2 - 1 steps/s - 1 s left\r\x1b[K"
        "\r\x1b[Kstep 2/2 - 2 steps/s\nstep 2/2 - "
    )
