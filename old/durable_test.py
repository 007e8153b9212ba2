import os
import subprocess
import sys

import pytest
import tensorflow as tf

from old import durable
from old.errors import UserError


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


def test_a_file_is_replaced_if_that_is_asked_for(tmp_path):
    path = tmp_path / "file"
    for content in ("before", "after"):
        with durable.whole_file(path, replace=True) as partial:
            partial.write_text(content)
    assert path.read_text() == "after"
    assert list(tmp_path.iterdir()) == [path]


def test_all_is_flushed_to_the_disk_before_it_has_its_name(
    tmp_path, monkeypatch
):
    flushed = []
    monkeypatch.setattr(
        durable,
        "flush",
        lambda item: flushed.append(
            (item, sorted(path.name for path in tmp_path.glob("[!.]*")))
        ),
    )
    with durable.whole(tmp_path / "b") as partial:
        partial.mkdir()
        inside = partial / "inside"
        inside.write_text("content")
        beside = partial.with_name("a")
        beside.write_text("content")
    assert flushed == [
        (beside, []),
        (inside, []),
        (partial, []),
        (tmp_path, ["a", "b"]),
    ]


def test_nothing_takes_the_place_of_what_came_in_between(tmp_path):
    path = tmp_path / "file"

    def write():
        with durable.whole_file(path) as partial:
            partial.write_text("ours")
            path.write_text("theirs")

    with pytest.raises(UserError, match="written: there is something"):
        write()
    assert path.read_text() == "theirs"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "error",
    [
        # As HDF5 and TensorFlow have it.
        OSError(28, "Unable to write (time = 1\n, name = 'x', buf = 0x55)"),
        tf.errors.ResourceExhaustedError(
            None, None, "{{node x}} /tmp/y; No space left on device [Op:Z]"
        ),
    ],
)
def test_internals_of_libraries_are_left_out(error):
    def fail():
        with durable.user_errors("x", "."):
            raise error

    with pytest.raises(UserError, match="^x cannot be written: No space left"):
        fail()


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
        partial.touch()
        name = partial.parent.name
        leftover = tmp_path / name.replace(f".{os.getpid()}.", f".{gone.pid}.")
        elsewhere = tmp_path / f".file.another-machine.{gone.pid}.partial"
        for path in (leftover, elsewhere):
            path.mkdir()
            (path / "half").touch()
        durable.remove_leftovers(tmp_path)
        assert sorted(tmp_path.iterdir()) == sorted([partial.parent, elsewhere])


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="file cannot be made: File exists"):
        durable.make_folder(tmp_path / "file")
