import os
import signal

import pytest

from common.errors import InterruptedAtOnce, UserError
from training.process import StopSignal, sole_trainer


def send(number):
    os.kill(os.getpid(), number)


def test_a_signal_ends_a_build_at_once():
    before = signal.getsignal(signal.SIGTERM)
    with (
        pytest.raises(InterruptedAtOnce, match="before the first") as caught,
        StopSignal(),
    ):
        send(signal.SIGTERM)
    assert caught.value.signal_number == signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before


def test_in_training_the_first_signal_waits_and_a_second_does_not():
    with StopSignal() as stop:
        stop.wait()
        send(signal.SIGINT)
        assert stop.number == signal.SIGINT
        with pytest.raises(InterruptedAtOnce, match="Stopped at once"):
            send(signal.SIGTERM)


def test_a_folder_has_one_trainer(tmp_path):
    with (
        sole_trainer(tmp_path),
        pytest.raises(UserError, match="another process is training in"),
        sole_trainer(tmp_path),
    ):
        pass
    with sole_trainer(tmp_path):
        pass
