import contextlib
import dataclasses
import errno
import io
import os
import runpy
import signal
import socket
import stat
import sys

import keras
import pytest

from common import errors, files, flags, load_backend
from common.errors import UserError, exit_on_user_error, user_errors
from common.files import atomic_write, make_folder, remove_partial, write_file
from common.flags import field
from testing import commands
from testing.commands import full_disk


@dataclasses.dataclass(frozen=True)
class Settings:
    size: int = field(3, "A size.", at_least=1, at_most=9)
    rate: float = field(0.1, "A rate.", above=0)
    kind: str = field("a", "A kind.", choices=("a", "b"))
    folder: str | None = field(None, "A folder.")
    fast: bool = field(False, "Whether it is fast.")
    even: int = field(2, "Even.", choices=(2, 4))
    numbers: str = field("0", "Numbers.", pattern=r"\d+(,\d+)*")
    even_x: bool = field(False, "Even.")
    count: int = field(1, "A count.")
    share: float = field(0.5, "A share.", below=1)


def test_flags_give_settings_and_settings_give_flags():
    arguments = ["--size=4", "--kind=b", "--folder=x y", "--fast=True"]
    settings = flags.parse(Settings, arguments)
    assert settings == Settings(4, 0.1, "b", "x y", True)
    assert flags.arguments(settings) == arguments
    assert flags.command_line(settings) == errors.shell_command(arguments)
    assert flags.command_line(settings, ("size", "rate")) == "--size=4"
    for bound in (1, 9):
        assert flags.parse(Settings, [f"--size={bound}"]).size == bound


def test_wrong_flags_are_named():
    wrong = "--size=0 --size=x --rate=0 --kind=c --fast=2 --even=3 --big x"
    wrong += " --numbers=1, --rate=1e39 --count=2147483648 --rate=nan"
    wrong += " --size=10 --share=1"
    hints = {each: each.partition("=")[0].strip("-") for each in wrong.split()}
    hints["--even-x=3"] = "even_x"
    hints["--learning-rate=0.1"] = "--hparams_override=learning_rate="
    for argument, hint in hints.items():
        with pytest.raises(UserError, match=hint):
            flags.parse(Settings, [argument])


def test_unknown_names_are_answered_with_those_that_exist():
    flags.require_known("size", "big", ["big", "small"])
    for name, text in (("pig", "names: big, small"), ("smal", "mean small?")):
        with pytest.raises(UserError, match=f"size '{name}'.*{text}"):
            flags.require_known("size", name, ["big", "small"])


def test_reading_names_the_file():
    for error, text in (
        (OSError(errno.ENOSPC, "x"), "a/b.png: No space left on device"),
        (socket.gaierror(-2, "Name not known"), "a/b.png: Name not known"),
        (KeyError("image"), "a/b.png: KeyError: 'image'"),
        (ValueError("first\nsecond"), "a/b.png: ValueError: first"),
        (UserError("already explained"), "already explained"),
    ):
        with pytest.raises(UserError) as caught, user_errors("a/b.png"):
            raise error
        assert str(caught.value) == text


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="has no named pipes")
def test_only_files_and_folders_are_read(tmp_path):
    paths = [tmp_path / f"{number}.png" for number in range(3)]
    os.mkfifo(paths[0])
    paths[1].symlink_to(os.devnull)
    socket.socket(socket.AF_UNIX).bind(str(paths[2]))
    for path in paths:
        refused = pytest.raises(UserError, match=f"{path} is a pipe")
        with refused, user_errors(path):
            raise AssertionError("nothing is opened")
    with user_errors(tmp_path):
        pass


def test_control_characters_of_names_are_escaped():
    assert str(UserError("caf\u00e9\x1b[2J.png")) == r"café\x1b[2J.png"
    assert str(UserError("\udce9.png")) == r"\udce9.png"  # not UTF-8


def status_after(error, **options):
    """What a command exits with after an error: its message, or a number."""
    stopped = pytest.raises(SystemExit)
    with stopped as stop, exit_on_user_error("x.py", **options):
        raise error
    return stop.value.code


def test_errors_of_the_user_are_one_line_and_others_show_their_traceback():
    assert status_after(UserError("a\nb")) == "x.py: a b"
    refused = PermissionError(errno.EACCES, "Permission denied", "a/b")
    assert status_after(refused) == "x.py: a/b: Permission denied"
    with pytest.raises(OSError, match="x"):
        status_after(OSError(errno.EIO, "x"))  # of no file
    with pytest.raises(UserError):
        status_after(UserError("a"), is_debug=lambda: True)


def test_an_interrupted_command_tells_how_to_resume(capsys):
    stop = errors.Interrupted("Stopped at step 3", signal.SIGTERM)
    assert status_after(stop) == 128 + signal.SIGTERM
    assert "Stopped at step 3\nResume with: python" in capsys.readouterr().err
    assert status_after(KeyboardInterrupt()) == 128 + signal.SIGINT


def test_a_closed_pipe_ends_a_command_silently():
    code = "from common.errors import exit_on_user_error as e\n"
    code += "with e('x'):\n  for i in range(10**6): print(i)"
    with commands.start("-c", code) as process:
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 1


def test_optional_output_may_be_lost_but_no_results():
    with full_disk(), errors.optional_output():
        for stream in (sys.stdout, sys.stderr) * 2:
            print("lost", file=stream, flush=True)
    text = f"x.py: standard output: {os.strerror(errno.ENOSPC)}"
    lost = pytest.raises(SystemExit, match=text)
    with full_disk(), lost, exit_on_user_error("x.py"):
        print("a note", file=sys.stderr, flush=True)
        print("a result")


@pytest.mark.skipif(sys.platform == "win32", reason="has no preexec_fn")
@pytest.mark.parametrize("closed", [0, 1, 2])
def test_closed_descriptors_are_not_used_for_files(tmp_path, closed):
    code = (
        "import os, sys; from common import flags\n"
        "def main(_):\n"
        "  print('out'); print('err', file=sys.stderr); sys.stdin.read()\n"
        "  os._exit(open(sys.executable).fileno())\n"
        "flags.run(main)"
    )
    code, *_ = commands.run("-c", code, preexec_fn=lambda: os.close(closed))
    assert code > 2


def test_signals_that_stop_a_training():
    received, names = [], ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2")
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    numbers = [n for n in numbers if signal.getsignal(n) != signal.SIG_IGN]
    with errors.handling_signals(lambda number, _: received.append(number)):
        for number in numbers:
            signal.raise_signal(number)
    assert received == numbers


def test_a_file_that_is_being_written_is_hidden_and_can_be_removed(tmp_path):
    other = tmp_path / ".b.txt.2.partial"
    other.mkdir()
    with contextlib.suppress(UserError), atomic_write(tmp_path / "a.txt"):
        (hidden,) = {*tmp_path.iterdir()} - {other}
        assert hidden.name.startswith(".a.txt.")
        # As after the process was killed.
        remove_partial(tmp_path, "a.txt")
        assert [*tmp_path.iterdir()] == [other]
        remove_partial(tmp_path)
        assert not [*tmp_path.iterdir()]


def test_models_are_channels_last():
    keras.config.set_image_data_format("channels_first")
    load_backend()
    assert keras.config.image_data_format() == "channels_last"


def test_files_appear_complete(tmp_path):
    path = tmp_path / "a.txt"
    with atomic_write(path) as partial:
        partial.write_text("a")
        assert not path.exists()
    assert path.read_text() == "a"
    with pytest.raises(UserError, match=r"a\.txt"), atomic_write(path):
        pass
    write_file(path, b"b")
    assert path.read_bytes() == b"b"
    failing = pytest.raises(UserError, match=r"c\.txt")
    with failing, atomic_write(tmp_path / "c.txt"):
        raise OSError(errno.ENOSPC, "x")
    with atomic_write(tmp_path / "folder") as partial:
        partial.mkdir()
        (partial / "inside").write_text("c")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.txt", "folder"]
    assert make_folder(tmp_path / "a" / "b").is_dir()
    with pytest.raises(UserError, match=r"a\.txt"):
        make_folder(path / "b")


@pytest.mark.skipif(sys.platform == "win32", reason="has no flock")
def test_folders_without_flush_and_lock(tmp_path, monkeypatch, capsys):
    def fail(descriptor, operation=None):
        if operation or stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, "reason")

    monkeypatch.setattr(os, "fsync", fail)
    monkeypatch.setattr(files.fcntl, "flock", fail)
    number = errno.EINVAL
    write_file(tmp_path / "x", "")
    for _ in range(2):
        with files.sole_trainer(tmp_path):
            assert not files.is_training(tmp_path)
    assert capsys.readouterr().err.count("Warning") == 1
    assert {path.name for path in tmp_path.iterdir()} == {"x", ".lock"}
    number = errno.EIO
    with pytest.raises(UserError, match="x: cannot write"):
        write_file(tmp_path / "x", "")


def test_notebooks_may_run_a_command_twice(monkeypatch):
    monkeypatch.setattr("sys.argv", ["experiment.py", "--train=false"])
    monkeypatch.setattr("sys.stdout", io.StringIO())
    for _ in range(2):
        with pytest.raises(SystemExit, match="--summary_dir is required"):
            runpy.run_path("experiment.py", run_name="__main__")
