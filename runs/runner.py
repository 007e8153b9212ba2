"""Starts experiment.py and reads the JSON files and lines that it leaves."""

import ctypes
import dataclasses
import json
import pathlib
import shlex
import signal
import subprocess
import sys
import tempfile

from common import flags
from common.errors import Interrupted, UserError, handling_signals, reading

ROOT = pathlib.Path(__file__).parents[1]
_COMMAND = (sys.executable, str(ROOT / "experiment.py"))
_PR_SET_PDEATHSIG = 1


def run(config):
    """Runs experiment.py in a process group of its own.

    After Ctrl-C or SIGTERM the process gets one SIGTERM and saves before it
    ends. It also gets SIGTERM if this process is killed.

    Args:
      config: `Config`.

    Returns:
      List of the JSON documents that are printed with --format=json.

    Raises:
      UserError: if the command fails.
      Interrupted: after a signal.
    """
    signals = []
    process = None

    def stop(number, frame):
        signals.append(number)
        if process is not None and len(signals) == 1:
            process.terminate()

    is_json = config.format == "json"
    with handling_signals(stop):
        process = subprocess.Popen(
            [*_COMMAND, *shlex.split(flags.command_line(config))],
            stdout=subprocess.PIPE if is_json else None,
            process_group=0,
            preexec_fn=_end_with_parent,
        )
        output, _ = process.communicate()
    if signals:
        raise Interrupted("Stopped", signals[0])
    if process.returncode:
        raise UserError(f"experiment.py ended with status {process.returncode}")
    return [json.loads(line) for line in (output or b"").splitlines()]


def _end_with_parent():
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def train_and_evaluate(config):
    """Trains, or resumes a training, and evaluates its checkpoints.

    Args:
      config: `Config` of the training.

    Returns:
      dict for JSON: commit, machine, network (weights, weights_without_decoder
      and multiply_adds), training_seconds, training_images_per_second,
      inference_images_per_second, peak_megabytes, examples, wrong (those of
      the last checkpoint) and points, a list of dicts of step, wrong and
      seconds of training.
    """
    run(config)
    training = _read_run(config.summary_dir)
    evaluation = dataclasses.replace(
        config, train=False, eval_all=True, format="json"
    )
    documents = [
        document
        for document in run(evaluation)
        # Checkpoints at other steps come from interruptions.
        if document["step"] % config.save_step == 0
        or document["step"] == config.max_steps
    ]
    last = documents[-1]
    network = ("weights", "weights_without_decoder", "multiply_adds")
    return {
        "commit": training["commit"],
        "machine": training["machine"],
        "network": {name: training[name] for name in network},
        "training_seconds": training["seconds"],
        "training_images_per_second": training["images_per_second"],
        "inference_images_per_second": last["images_per_second"],
        "peak_megabytes": training["peak_megabytes"],
        "examples": last["num_examples"],
        "wrong": last["wrong"],
        "points": [
            {name: document[name] for name in ("step", "wrong", "seconds")}
            for document in documents
        ],
    }


def measure_speed(config, steps):
    """Training steps per second of a short training that leaves no files."""
    with tempfile.TemporaryDirectory() as folder:
        run(
            dataclasses.replace(
                config,
                summary_dir=folder,
                max_steps=steps,
                save_step=steps,
            )
        )
        return _read_run(folder)["images_per_second"] / config.batch_size


def _read_run(folder):
    path = pathlib.Path(folder, "run.json")
    with reading(path):
        return json.loads(path.read_text())
