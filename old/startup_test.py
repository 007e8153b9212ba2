import json
import os

import pytest

from testing import commands

PROGRAM = """
import os
import signal
from old import startup

# Jobs in the background of a script ignore it.
signal.signal(signal.SIGINT, signal.default_int_handler)

startup.os.path.exists = lambda path: False  # no GPU's driver
with startup._without_harmless_lines():
    os.write(2, b"WARNING: All log messages before absl::InitializeLog() is\\n")
    os.write(2, b"E0000 00:00:1.2 3 cuda_platform.cc:52] call to cuInit\\n")
    os.write(2, b"E0000 00:00:1.2 3 memory.cc:7] out of memory\\n")
    {end}
os.write(2, b"E0000 00:00:1.2 3 cuda_platform.cc:52] later\\n")
"""


@pytest.mark.parametrize(
    ("end", "code", "later"),
    [("pass", 0, True), ("os.abort()", -6, False), ("1 / 0", 1, False)],
)
def test_only_harmless_lines_are_left_out(end, code, later):
    found, _, errors = commands.run("-c", PROGRAM.format(end=end))
    assert found == code
    assert "out of memory" in errors
    assert "cuInit" not in errors
    assert "All log messages" not in errors
    assert ("later" in errors) == later
    assert ("ZeroDivisionError" in errors) == (end == "1 / 0")


def test_an_interruption_is_told():
    end = (
        "try:\n"
        "        os.killpg(0, signal.SIGINT)\n"
        "        signal.pause()\n"
        "    except KeyboardInterrupt:\n"
        "        os.write(2, b'interrupted')"
    )
    program = PROGRAM.format(end=end)
    code, _, errors = commands.run("-c", program, start_new_session=True)
    assert code == 0
    assert "interrupted" in errors
    assert "Traceback" not in errors


def test_a_backend_that_is_none_of_ours_is_named():
    program = "from old import startup; startup.load_backend()"
    env = {**os.environ, "KERAS_BACKEND": "numpy"}
    _, _, errors = commands.run("-c", program, env=env)
    assert "UserError: KERAS_BACKEND=numpy cannot be used: it must be" in errors


@pytest.mark.parametrize(
    ("backend", "message"),
    # Keras' numpy backend imports JAX: where that is missing, it says so.
    [("numpy", ""), ("nothing", ", and installed (Unable to import")],
)
def test_so_is_one_of_the_file_of_keras(tmp_path, backend, message):
    program = "from old import startup; startup.load_backend()"
    (tmp_path / "keras.json").write_text(json.dumps({"backend": backend}))
    env = {**os.environ, "KERAS_HOME": str(tmp_path), "KERAS_BACKEND": ""}
    _, _, errors = commands.run("-c", program, env=env)
    one_of = "cannot be used: it must be one of jax, tensorflow, torch"
    told = f"UserError: the backend of keras.json {one_of}"
    assert told + message in errors
    env["KERAS_BACKEND"] = backend
    _, _, errors = commands.run("-c", program, env=env)
    told = f"UserError: KERAS_BACKEND={backend} {one_of}"
    assert told + message in errors
