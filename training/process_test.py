import errno
import fcntl
import os
import signal
import types

import pytest

from devices.parallel import OneDevice
from old.errors import InterruptedAtOnce, UserError
from training import process
from training.callbacks import Save, StopAfterSignal
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


def test_in_training_the_first_signal_waits_and_a_later_one_does_not(
    monkeypatch,
):
    with StopSignal() as stop:
        stop.wait()
        send(signal.SIGINT)
        assert stop.number == signal.SIGINT
        send(signal.SIGTERM)  # of a scheduler, to all that it started
        assert stop.number == signal.SIGINT
        monkeypatch.setattr(process, "_SAME", -1)
        with pytest.raises(InterruptedAtOnce, match="Stopped at once"):
            send(signal.SIGTERM)


def test_a_signal_that_another_process_told_of_may_also_come_here():
    with StopSignal() as stop:
        stop.wait()
        stop.heed(signal.SIGTERM)
        send(signal.SIGTERM)
        assert stop.is_heeded


def test_a_folder_that_is_removed_or_missing_is_not_held(tmp_path, monkeypatch):
    folder = tmp_path / "train"
    with pytest.raises(UserError, match="train cannot be read: No such file"):
        sole_trainer(folder).__enter__()
    folder.mkdir()
    locked = process._locked

    def removed(descriptor, *arguments):
        folder.rmdir()  # by another training, before this one has the lock
        return locked(descriptor, *arguments)

    monkeypatch.setattr(process, "_locked", removed)
    with pytest.raises(UserError, match="just removed .*train: try again"):
        sole_trainer(folder).__enter__()


def test_a_closed_terminal_ends_a_training_but_for_nohup():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopSignal() as stop:
            stop.wait()
            send(signal.SIGHUP)
            assert stop.number is None
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        with StopSignal() as stop:
            stop.wait()
            send(signal.SIGHUP)
            assert stop.number == signal.SIGHUP
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_signal_after_a_step_counts_from_the_next_one_on():
    """What was not looked at for infinite numbers is not saved."""
    saved, stop = [], StopSignal()
    config = types.SimpleNamespace(max_steps=9, save_step=5, eval_every=None)
    save = Save(0, config, lambda model, step: saved.append(step), stop)
    first = StopAfterSignal(0, stop, OneDevice())
    model = types.SimpleNamespace(stop_training=False)
    for callback in (first, save):
        callback.set_model(model)
    first.on_step(1, {})
    stop.number = signal.SIGTERM
    save.on_step(1, {})
    assert not saved
    first.on_step(2, {})
    save.on_step(2, {})
    assert saved == [2]
    assert model.stop_training


def test_a_disk_without_locks_is_named(tmp_path, monkeypatch):
    def flock(*arguments):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    with (
        pytest.raises(UserError, match=f"{tmp_path} cannot be locked.* locks"),
        sole_trainer(tmp_path),
    ):
        pass
