import os
import subprocess
import sys

import pytest

from common import durable
from common.errors import UserError


def test_a_file_is_in_its_place_once_it_is_whole(tmp_path):
    path = tmp_path / "file"
    with durable.whole_file(path) as partial:
        partial.write_text("content")
        assert not path.exists()
    assert path.read_text() == "content"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_what_fails_leaves_nothing(tmp_path, error):
    def write():
        with durable.whole_file(tmp_path / "file") as partial:
            partial.write_text("half")
            raise error

    with pytest.raises(error):
        write()
    assert not list(tmp_path.iterdir())


def test_a_disk_that_is_full_leaves_nothing(tmp_path, monkeypatch):
    def fail(path):
        raise OSError(28, "No space left on device")

    path = tmp_path / "file"
    monkeypatch.setattr(durable, "flush", fail)
    message = f"{path} cannot be written: No space left on device"
    with (
        pytest.raises(UserError, match=message),
        durable.whole_file(path) as partial,
    ):
        partial.write_text("content")
    assert not list(tmp_path.iterdir())


def test_file_and_folder_are_flushed_to_the_disk(tmp_path, monkeypatch):
    path, flushed = tmp_path / "file", []
    monkeypatch.setattr(
        durable, "flush", lambda item: flushed.append((item, path.exists()))
    )
    with durable.whole_file(path) as partial:
        partial.write_text("content")
    assert flushed == [(partial, False), (tmp_path, True)]


def test_a_file_that_is_there_stays(tmp_path):
    path = tmp_path / "file"
    path.write_text("before")
    with (
        pytest.raises(UserError, match=f"{path} is there already"),
        durable.whole_file(path),
    ):
        raise AssertionError("it must not be written")
    assert path.read_text() == "before"


def test_leftovers_of_processes_that_are_gone_are_removed(tmp_path):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with durable.whole_file(tmp_path / "file") as partial:
        name = partial.name
        partial.touch()
        leftover = tmp_path / name.replace(f".{os.getpid()}.", f".{gone.pid}.")
        elsewhere = tmp_path / f".file.another-machine.{gone.pid}.partial"
        for path in (leftover, elsewhere):
            path.touch()
        durable.remove_leftovers(tmp_path)
        assert sorted(tmp_path.iterdir()) == sorted([partial, elsewhere])


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="file cannot be made: File exists"):
        durable.make_folder(tmp_path / "file")
