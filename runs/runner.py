"""Starts experiment.py and reads the JSON that it prints and writes."""

import ctypes
import dataclasses
import json
import math
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

from common import flags
from common.errors import Interrupted, UserError, handling_signals
from common.files import read_json

ROOT = pathlib.Path(__file__).parents[1]
_COMMAND = (sys.executable, str(ROOT / "experiment.py"))
_PR_SET_PDEATHSIG = 1
_TERMINATE = getattr(signal, "CTRL_BREAK_EVENT", signal.SIGTERM)


def run(config, temporary=False):
    """Runs experiment.py with a `Config`; returns the JSON documents it prints.

    After Ctrl-C or SIGTERM, and on Linux if this process is killed, the command
    saves and ends. If `temporary`, it prints only progress and errors, and ends
    without saving. Raises UserError if it fails, Interrupted after a signal.
    """
    signals = []

    def stop(number, frame):
        signals.append(number)
        if temporary:
            process.kill()
        elif len(signals) == 1:  # `terminate` would not save on Windows
            process.send_signal(_TERMINATE)

    def end_with_parent():
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

    stdout = subprocess.DEVNULL if temporary else None
    process = subprocess.Popen(
        [*_COMMAND, *flags.arguments(config)],
        stdout=subprocess.PIPE if config.format == "json" else stdout,
        creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        preexec_fn=end_with_parent if sys.platform == "linux" else None,
        start_new_session=True,
    )
    with handling_signals(stop):
        output, _ = process.communicate()
    if signals:
        raise Interrupted("Stopped", signals[0])
    if process.returncode:
        raise UserError(f"experiment.py ended with status {process.returncode}")
    return [json.loads(line) for line in (output or b"").splitlines()]


def train_and_evaluate(config):
    """Trains or resumes, and evaluates; returns a dict for JSON.

    `wrong` is of the last checkpoint, `points` also of those at multiples of
    `save_step`.
    """
    run(config)
    training = read_json(pathlib.Path(config.summary_dir, "run.json"), "run")
    documents = run(
        dataclasses.replace(config, train=False, eval_all=True, format="json")
    )
    last = documents[-1]
    network = ("weights", "weights_without_decoder", "multiply_adds")
    counts = ("wrong", "wrong_percent_per_object", "wrong_examples")
    return {
        "commit": training.get("commit"),
        "machine": training["machine"],
        "network": {name: training.get(name) for name in network},
        "training_seconds": training["seconds"],
        "training_images_per_second": training.get("images_per_second"),
        "inference_images_per_second": last["images_per_second"],
        "peak_megabytes": training["peak_megabytes"],
        "examples": last["num_examples"],
        **{name: last[name] for name in counts},
        "points": [
            {name: document[name] for name in ("step", "wrong", "seconds")}
            for document in documents
            # Interruptions leave checkpoints at other steps.
            if document["step"] % config.save_step == 0 or document is last
        ],
    }


def measure_speed(config, steps):
    """Training steps per second of a short training that leaves no files."""
    with tempfile.TemporaryDirectory() as folder:
        short = {"summary_dir": folder, "max_steps": steps}
        run(dataclasses.replace(config, **short), temporary=True)
        training = read_json(pathlib.Path(folder, "run.json"), "run")
    return training["images_per_second"] / config.batch_size


def remaining(unit, count, minutes):
    """How many units are left and, if known, about how long, as text."""
    text = f"{count:,} {unit}{'s' * (count > 1)} left"
    return f"{text}, about {math.ceil(minutes):,} min" if minutes else text


def countdown(count):
    """Yields for each of `count` runs how many are left, and about how long."""
    start = time.monotonic()
    for done in range(count):
        each = (time.monotonic() - start) / 60 / max(done, 1)
        yield remaining("run", count - done, done and each * (count - done))
