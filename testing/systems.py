"""Removes from Python what macOS or Windows lacks: see .ci/run."""

import builtins
import fcntl
import functools
import io
import multiprocessing
import os
import pathlib
import re
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import types

import psutil

ROOT = str(pathlib.Path(__file__).resolve().parents[1])
WINDOWS = {"windows": True, "macos": False}[os.environ["SIMULATED"]]
LACKING = ["posix_fallocate", "sched_getaffinity"]
FILES_OF_LINUX = ("/proc/cpuinfo", "/proc/self/status", "/dev/stdin")
BAD_NAME = re.compile(r'[<>:"|?*\0-\x1f]|[. ]$|^(con|prn|aux|nul)(\.|$)', re.I)


class Sys(types.ModuleType):
    """The module `sys` as the project sees it."""

    platform = "win32" if WINDOWS else "darwin"
    __getattr__ = functools.partial(getattr, sys)

    def __setattr__(self, name, value):
        setattr(sys, name, value)


MODULES = {"sys": Sys("sys")}
if WINDOWS:
    MODULES |= dict.fromkeys(("fcntl", "resource", "termios", "pwd", "grp"))
    MODULES["msvcrt"] = types.SimpleNamespace(
        LK_NBLCK=fcntl.LOCK_EX | fcntl.LOCK_NB,
        locking=lambda descriptor, mode, size: fcntl.flock(descriptor, mode),
    )


def _replace(owner, name, function):
    original = getattr(owner, name)

    @functools.wraps(original)
    def new(*arguments, **keywords):
        return function(original, *arguments, **keywords)

    setattr(owner, name, new)


def _import(original, name, scope=None, *others, **more):
    if name in MODULES and (scope or {}).get("__file__", "").startswith(ROOT):
        if MODULES[name] is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return MODULES[name]
    return original(name, scope, *others, **more)


def _open(
    original, file, mode="r", buffering=-1, encoding=None, *others, **more
):
    if file in FILES_OF_LINUX or str(file) in FILES_OF_LINUX:
        raise FileNotFoundError(2, "No such file or directory", file)
    if WINDOWS and "b" not in mode and encoding in (None, "locale"):
        encoding = "cp1252"
    return original(file, mode, buffering, encoding, *others, **more)


def _start(original, self, command, *others, **more):
    if command[0] == sys.executable and str(command[1]).endswith(".py"):
        command = [sys.executable, __file__, *command[1:]]
    if WINDOWS and more.get("preexec_fn"):
        raise ValueError("preexec_fn is not supported on Windows platforms")
    more.pop("creationflags", None)
    original(self, command, *others, **more)


def _use_path(original, path, *others, **more):
    verb = original.__name__
    if sys._getframe(2).f_code.co_filename == tempfile.__file__:
        return original(path, *others, **more)  # Windows has no such files
    paths = [path, *others[: verb in ("rename", "replace")]]
    if verb == "open" and os.path.isdir(path):
        raise PermissionError(13, "Permission denied", path)
    for name in paths if verb not in ("open", "mkdir") else ():
        name = os.path.realpath(os.fsdecode(name))
        for file in psutil.Process().open_files():
            if f"{file.path}/".startswith(f"{name}/"):
                raise PermissionError(13, "WinError 32", name)
    if BAD_NAME.search(os.path.basename(os.fsdecode(paths[-1]))):
        raise OSError(22, "Invalid argument", paths[-1])
    return original(path, *others, **more)


def _fsync(original, descriptor):
    if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
        raise OSError(9, "Bad file descriptor")
    original(descriptor)


if WINDOWS:
    LACKING += ["fork", "killpg", "mkfifo", "pread", "setsid"]
    for name in ("open", "mkdir", "unlink", "remove", "rename", "replace"):
        _replace(os, name, _use_path)
    _replace(os, "fsync", _fsync)
    subprocess.Popen.terminate = subprocess.Popen.kill  # without saving
    subprocess.CREATE_NEW_PROCESS_GROUP = 0x200
    shutil._use_fd_functions = False
    # A signal of Linux that nothing else uses.
    signal.SIGBREAK = signal.CTRL_BREAK_EVENT = signal.SIGTTIN
    del signal.SIGHUP
else:
    del psutil.Process.cpu_affinity

for name in LACKING:
    delattr(os, name)
_replace(builtins, "__import__", _import)
_replace(subprocess.Popen, "__init__", _start)
for owner in (builtins, io):
    _replace(owner, "open", _open)
multiprocessing.set_start_method("spawn", force=True)

if __name__ == "__main__":
    sys.argv = sys.argv[1:]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    runpy.run_path(sys.argv[0], run_name="__main__")
