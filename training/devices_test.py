"""Devices, processes and the backends that are installed."""

import contextlib
import functools
import importlib.util
import os
import re
import shlex
import signal
import socket
import time

import numpy as np
import pytest

import experiment
from config import Config
from testing import commands
from testing.events import scalars
from testing.small_models import overrides
from training import checkpoint

OTHERS = [name for name in ("jax", "torch") if importlib.util.find_spec(name)]
needs_jax = pytest.mark.skipif("jax" not in OTHERS, reason="needs JAX")
SMALL = {
    "hparams_override": "num_prime_capsules=2,conv_channels=8,class_atoms=4",
    "batch_size": 8,
    "summary_step": 1,
}
FLAGS = [f"--{name}={value}" for name, value in SMALL.items()]


# Runs experiments with the flags of each argument.
SEVERAL = """
import shlex, sys
import experiment
from common import flags
from config import Config
for line in sys.argv[1:]:
    experiment.run(flags.parse(Config, shlex.split(line)))
"""


def start(backend, *command):
    on_cpus = {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}
    environment = {**os.environ, "KERAS_BACKEND": backend, **on_cpus}
    return commands.start(*command, env=environment)


def output_of(*processes):
    """The output of the first process; all must succeed."""
    results = [commands.finish(process) for process in processes]
    for code, _, errors in results:
        assert code == 0, errors
    first, *others = [output for _, output, _ in results]
    assert "wrong predictions" not in "".join(others)
    return first


def run(backend, *experiments):
    """Runs lists of flags one after the other, in one process."""
    lines = map(shlex.join, experiments)
    return output_of(start(backend, "-c", SEVERAL, *lines))


def losses(summary_dir):
    by_step = scalars(summary_dir / "train")["total_loss"]
    return [by_step[step] for step in sorted(by_step)]


def wrong(output):
    (count,) = re.findall(r"Total wrong predictions: (\d+)", output)
    return int(count)


def evaluation(summary_dir, step=20):
    """Flags to evaluate an odd number of images."""
    path = f"{summary_dir}/train/model.ckpt-{step}"
    return ["--train=false", "--eval_size=357", f"--checkpoint={path}"]


@pytest.fixture(scope="module")
def results_on(tmp_path_factory):
    """Function from backend and devices to losses and wrong predictions."""

    @functools.cache
    def results(backend, count):
        folder = tmp_path_factory.mktemp(backend)
        devices = devices_flags(count)
        training = [f"--summary_dir={folder}", *FLAGS, "--max_steps=20"]
        evaluating = [*evaluation(folder), *devices]
        output = run(backend, [*training, *devices], evaluating)
        return losses(folder), wrong(output)

    return results


def devices_flags(count):
    return [] if count == 1 else ["--device=cpu", f"--num_gpus={count}"]


def assert_same_losses(found, expected):
    assert len(found) == 20
    assert max(found) > min(found) + 1e-3
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "backend", ["tensorflow", pytest.param("jax", marks=needs_jax)]
)
def test_two_devices_equal_one(results_on, backend):
    expected, wrong_on_one = results_on(backend, 1)
    found, wrong_on_two = results_on(backend, 2)
    assert_same_losses(found, expected)
    assert wrong_on_two == wrong_on_one


@pytest.mark.slow
def test_weight_decay_on_two_devices(tmp_path):
    model = overrides("matrix_capsule", weight_decay=0.1)
    flags = "--model=matrix_capsule", f"--hparams_override={model}", *FLAGS[1:]
    for count in (1, 2):
        folder = f"--summary_dir={tmp_path}/{count}", "--max_steps=3"
        run("tensorflow", [*folder, *devices_flags(count), *flags])
    one, two = losses(tmp_path / "1"), losses(tmp_path / "2")
    assert len(one) == 3
    np.testing.assert_allclose(one, two, rtol=1e-4)


def start_two(*flags):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    flags += f"--coordinator_address=127.0.0.1:{port}", "--num_processes=2"
    indices = "--process_index=0", "--process_index=1"
    return [start("jax", "experiment.py", *flags, index) for index in indices]


@pytest.mark.slow
@needs_jax
def test_two_processes_equal_one(tmp_path, results_on):
    expected, wrong_in_one = results_on("jax", 1)
    flags = [f"--summary_dir={tmp_path}", *FLAGS]
    output_of(*start_two(*flags, "--max_steps=10"))
    output = output_of(*start_two(*flags, "--max_steps=20"))
    assert "Resuming from" in output
    assert_same_losses(losses(tmp_path), expected)
    evaluated = output_of(*start_two(*evaluation(tmp_path)))
    assert wrong(evaluated) == wrong_in_one


@contextlib.contextmanager
def training_for_long(summary_dir):
    """Two processes that have saved two checkpoints."""
    processes = start_two(
        *(f"--summary_dir={summary_dir}", *FLAGS, "--save_step=2"),
        "--max_steps=100000",
    )
    before = latest_step(summary_dir)
    deadline = time.monotonic() + 400
    try:
        while latest_step(summary_dir) < before + 4:
            assert all(process.poll() is None for process in processes)
            assert time.monotonic() < deadline
            time.sleep(0.1)
        yield processes
    finally:
        for process in processes:
            with process:
                process.kill()


def latest_step(summary_dir):
    """The newest checkpoint's step, 0 if there is none."""
    found = checkpoint.find_all(summary_dir / "train")
    return found[-1][0] if found else 0


@pytest.mark.slow
@needs_jax
def test_processes_end_together_and_resume(tmp_path):
    for killed in (0, 1):
        with training_for_long(tmp_path) as processes:
            processes[killed].kill()
            commands.finish(processes[1 - killed])
            assert processes[1 - killed].returncode != 0
        step = latest_step(tmp_path)
    with training_for_long(tmp_path) as processes:
        processes[1].send_signal(signal.SIGTERM)
        results = [commands.finish(process) for process in processes]
    assert [code for code, _, _ in results] == [128 + signal.SIGTERM] * 2
    output = results[0][1]
    path = checkpoint.checkpoint_path(tmp_path / "train", step)
    assert f"Resuming from {path}" in output
    errors = "".join(errors for _, _, errors in results)
    saved = re.findall(r"Stopped at step \d+, saved (\S+)", errors)
    assert len(saved) == 2
    assert saved[0] == saved[1]


@pytest.mark.slow
@pytest.mark.parametrize("backend", OTHERS)
def test_backends_read_each_others_checkpoints(tmp_path, backend):
    flags = [f"--summary_dir={tmp_path}", *FLAGS]
    evaluating = evaluation(tmp_path, 9)
    run(backend, [*flags, "--max_steps=3"])
    assert "Resuming from" in run("tensorflow", [*flags, "--max_steps=6"])
    output = run(backend, [*flags, "--max_steps=9"], evaluating)
    assert "Resuming from" in output
    assert len(losses(tmp_path)) == 9
    assert wrong(output) == wrong(run("tensorflow", evaluating))


@pytest.mark.slow
def test_mixed_precision(tmp_path):
    def train(policy):
        options = {"summary_dir": str(tmp_path / policy), "max_steps": 12}
        experiment.run(Config(dtype_policy=policy, **options, **SMALL))
        return losses(tmp_path / policy)

    exact = train("float32")
    for policy in ("mixed_bfloat16", "mixed_float16"):
        mixed = train(policy)
        np.testing.assert_allclose(mixed, exact, rtol=0.03)
        assert mixed != pytest.approx(exact, rel=1e-6)
