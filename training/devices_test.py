"""Devices, processes and backends, by commands.

Backends that are not installed are left out.
"""

import contextlib
import functools
import importlib.util
import os
import re
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


def run(backend, *flags):
    return output_of(start(backend, "experiment.py", *flags))


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


def train_and_evaluate(backend, summary_dir, *flags):
    folder = f"--summary_dir={summary_dir}"
    run(backend, folder, *flags, *FLAGS, "--max_steps=20")
    output = run(backend, *evaluation(summary_dir), *flags)
    return losses(summary_dir), wrong(output)


@pytest.fixture(scope="module")
def one_device(tmp_path_factory):
    """Function from a backend to its results on one device."""

    @functools.cache
    def results(backend):
        return train_and_evaluate(backend, tmp_path_factory.mktemp(backend))

    return results


def assert_same_losses(found, expected):
    assert len(found) == 20
    assert max(found) > min(found) + 1e-3
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "backend", ["tensorflow", pytest.param("jax", marks=needs_jax)]
)
def test_two_devices_equal_one(tmp_path, one_device, backend):
    one, wrong_of_one = one_device(backend)
    two, wrong_of_two = train_and_evaluate(
        backend, tmp_path, "--device=cpu", "--num_gpus=2"
    )
    assert_same_losses(two, one)
    assert wrong_of_two == wrong_of_one


@pytest.mark.slow
def test_weight_decay_on_two_devices(tmp_path):
    model = overrides("matrix_capsule", weight_decay=0.1)
    flags = "--model=matrix_capsule", f"--hparams_override={model}", *FLAGS[1:]
    for number in (1, 2):
        where = f"--num_gpus={number}", f"--summary_dir={tmp_path}/{number}"
        run("tensorflow", "--device=cpu", *where, *flags, "--max_steps=3")
    one, two = losses(tmp_path / "1"), losses(tmp_path / "2")
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
def test_two_processes_equal_one(tmp_path, one_device):
    one, wrong_of_one = one_device("jax")
    flags = [f"--summary_dir={tmp_path}", *FLAGS]
    output_of(*start_two(*flags, "--max_steps=10"))
    output = output_of(*start_two(*flags, "--max_steps=20"))
    assert "Resuming from" in output
    assert_same_losses(losses(tmp_path), one)
    evaluated = output_of(*start_two(*evaluation(tmp_path)))
    assert wrong(evaluated) == wrong_of_one


@contextlib.contextmanager
def training_for_long(summary_dir):
    """Two processes that have saved, and their flags."""
    flags = [f"--summary_dir={summary_dir}", *FLAGS, "--save_step=2"]
    processes = start_two(*flags, "--max_steps=100000")
    deadline = time.monotonic() + 400
    try:
        while not (summary_dir / "train" / "model.ckpt-4").exists():
            assert all(process.poll() is None for process in processes)
            assert time.monotonic() < deadline
            time.sleep(0.1)
        yield processes, flags
    finally:
        for process in processes:
            with process:
                process.kill()


@pytest.mark.slow
@needs_jax
@pytest.mark.parametrize("killed", [0, 1])
def test_a_killed_process_ends_the_other(tmp_path, killed):
    with training_for_long(tmp_path) as (processes, flags):
        processes[killed].kill()
        commands.finish(processes[1 - killed])
        assert processes[1 - killed].returncode != 0
    step, path = checkpoint.find_all(tmp_path / "train")[-1]
    output = output_of(*start_two(*flags, f"--max_steps={step + 2}"))
    assert f"Resuming from {path}" in output


@pytest.mark.slow
@needs_jax
def test_a_signal_to_one_process_stops_both(tmp_path):
    with training_for_long(tmp_path) as (processes, _):
        processes[1].send_signal(signal.SIGTERM)
        errors = [commands.finish(process)[2] for process in processes]
    assert [p.returncode for p in processes] == [128 + signal.SIGTERM] * 2
    saved = re.findall(r"Stopped at step \d+, saved (\S+)", "".join(errors))
    assert len(saved) == 2
    assert saved[0] == saved[1]


@pytest.mark.slow
@pytest.mark.parametrize("backend", OTHERS)
def test_backends_read_each_others_checkpoints(tmp_path, backend):
    flags = [f"--summary_dir={tmp_path}", *FLAGS]
    run(backend, *flags, "--max_steps=3")
    assert "Resuming from" in run("tensorflow", *flags, "--max_steps=6")
    assert "Resuming from" in run(backend, *flags, "--max_steps=9")
    assert len(losses(tmp_path)) == 9
    names = ("tensorflow", backend)
    counts = {wrong(run(name, *evaluation(tmp_path, 9))) for name in names}
    assert len(counts) == 1


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
