"""Backends, devices and processes, by the command line as users start it.

The backends that are not installed are left out of the lists below.
"""

import contextlib
import dataclasses
import functools
import importlib.util
import json
import os
import pathlib
import re
import signal
import socket
import time

import keras
import numpy as np
import pytest

import checkpoints
import experiment
from devices import Settings, choice, cluster, parallel
from old.errors import UserError
from testing import commands
from testing.events import scalars
from testing.small_models import overrides
from training.config import Config

OTHERS = [name for name in ("jax", "torch") if importlib.util.find_spec(name)]
ALL = ["tensorflow", *OTHERS]
JAX = [name for name in OTHERS if name == "jax"]
SMALL = {
    "hparams_override": "num_prime_capsules=2,conv_channels=8,class_atoms=4",
    "batch_size": 8,
    "summary_step": 1,
}
FLAGS = [f"--{name}={value}" for name, value in SMALL.items()]
# Processes that start, wait or die together.
slow = pytest.mark.slow


def start(backend, *command):
    return commands.start(
        *command,
        env={
            **os.environ,
            "KERAS_BACKEND": backend,
            # Without GPUs also where there are some.
            "CUDA_VISIBLE_DEVICES": "",
            "JAX_PLATFORMS": "cpu",
        },
    )


def output_of(*processes):
    """The first one's output; all must succeed."""
    results = [commands.finish(process) for process in processes]
    for code, _, errors in results:
        assert code == 0, errors
    first, *others = [output for _, output, _ in results]
    assert not any("wrong predictions" in output for output in others)
    return first


def run(backend, *flags):
    """The output; the run must succeed."""
    return output_of(start(backend, "experiment.py", *flags))


def losses(summary_dir):
    """The total loss by step."""
    found = scalars(summary_dir / "train")["total_loss"]
    return [found[step] for step in sorted(found)]


def wrong(output):
    (count,) = re.findall(r"Total wrong predictions: (\d+)", output)
    return int(count)


def evaluation(summary_dir, step=20):
    """Flags to evaluate an odd number of images."""
    path = f"{summary_dir}/train/model.ckpt-{step}"
    return ["--train=false", "--eval_size=357", f"--checkpoint={path}"]


def train_and_evaluate(backend, summary_dir, *flags):
    """Losses of 20 steps, and wrong predictions."""
    run(
        backend,
        f"--summary_dir={summary_dir}",
        *flags,
        *FLAGS,
        "--max_steps=20",
    )
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
    assert max(found) > min(found) + 1e-3  # it learned something
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


@slow
@pytest.mark.parametrize("backend", ["tensorflow", *JAX])
def test_two_devices_are_as_one(tmp_path, one_device, backend):
    one, wrong_of_one = one_device(backend)
    two, wrong_of_two = train_and_evaluate(
        backend, tmp_path, "--device=cpu", "--num_gpus=2"
    )
    assert_same_losses(two, one)
    assert wrong_of_two == wrong_of_one


@slow
def test_a_decay_of_weights_is_that_of_one_device(tmp_path):
    model = f"{overrides('matrix_capsule')},weight_decay=0.1"
    found = []
    for devices in ("1", "2"):
        folder = tmp_path / devices
        run(
            "tensorflow",
            "--device=cpu",
            f"--num_gpus={devices}",
            f"--summary_dir={folder}",
            "--model=matrix_capsule",
            f"--hparams_override={model}",
            *FLAGS[1:],
            "--max_steps=3",
        )
        found.append(losses(folder))
        cost = scalars(folder / "train")["batch_classification_cost"]
        assert found[-1][0] > cost[1] + 0.5
    np.testing.assert_allclose(*found, rtol=1e-4)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def start_two(*flags):
    address = f"127.0.0.1:{free_port()}"
    return [
        start(
            "jax",
            "experiment.py",
            f"--coordinator_address={address}",
            "--num_processes=2",
            f"--process_index={index}",
            *flags,
        )
        for index in range(2)
    ]


def run_two(*flags):
    """The first process's output; both must succeed."""
    return output_of(*start_two(*flags))


needs_jax = pytest.mark.parametrize("backend", JAX)


@slow
@needs_jax
def test_two_processes_are_as_one(tmp_path, one_device, backend):
    one, wrong_of_one = one_device(backend)
    flags = [f"--summary_dir={tmp_path}", *FLAGS]
    run_two(*flags, "--max_steps=10")
    assert "Resuming from" in run_two(*flags, "--max_steps=20")
    assert_same_losses(losses(tmp_path), one)
    assert wrong(run_two(*evaluation(tmp_path))) == wrong_of_one


@contextlib.contextmanager
def training_for_long(summary_dir):
    """Two processes that have saved twice, and their flags; ended after it."""
    flags = [f"--summary_dir={summary_dir}", *FLAGS, "--save_step=2"]
    processes = start_two(*flags, "--max_steps=100000")
    path = summary_dir / "train" / "model.ckpt-4"
    deadline = time.monotonic() + 400
    try:
        while not path.exists():
            assert all(process.poll() is None for process in processes)
            assert time.monotonic() < deadline, f"{path} never came"
            time.sleep(0.1)
        yield processes, flags
    finally:
        for process in processes:
            with process:
                process.kill()


@slow
@needs_jax
@pytest.mark.parametrize("killed", [0, 1])
def test_a_killed_process_ends_the_other(tmp_path, backend, killed):
    with training_for_long(tmp_path) as (processes, flags):
        processes[killed].kill()
        began = time.monotonic()
        _, errors = processes[1 - killed].communicate(timeout=120)
        assert time.monotonic() - began < 60
        assert processes[1 - killed].returncode not in (0, None)
    # Ours, or JAX's own if it is first.
    assert re.search("another one has died|another task died", errors)
    step, path = checkpoints.find_all(tmp_path / "train")[-1]
    output = run_two(*flags, f"--max_steps={step + 2}")
    assert f"Resuming from {path}" in output


@slow
@needs_jax
def test_a_signal_to_one_process_stops_both(tmp_path, backend):
    with training_for_long(tmp_path) as (processes, _):
        processes[1].send_signal(signal.SIGTERM)
        errors = [p.communicate(timeout=120)[1] for p in processes]
    assert [p.returncode for p in processes] == [128 + signal.SIGTERM] * 2
    saved = re.findall(r"Stopped at step \d+, saved (\S+)", "".join(errors))
    assert len(saved) == 2
    assert saved[0] == saved[1]
    assert pathlib.Path(saved[0]).is_dir()


@slow
@pytest.mark.parametrize("backend", OTHERS)
def test_checkpoints_go_from_one_backend_to_another(tmp_path, backend):
    flags = [f"--summary_dir={tmp_path}", *FLAGS]
    run(backend, *flags, "--max_steps=3")
    assert "Resuming from" in run("tensorflow", *flags, "--max_steps=6")
    assert "Resuming from" in run(backend, *flags, "--max_steps=9")
    assert len(losses(tmp_path)) == 9
    names = ("tensorflow", backend)
    counts = {wrong(run(name, *evaluation(tmp_path, 9))) for name in names}
    assert len(counts) == 1


@slow
@pytest.mark.parametrize("backend", OTHERS)
def test_layers_on_the_other_backends(backend):
    files = ["layers", "layers_test.py"]
    if backend == "jax":
        # It compiles each operation of each shape, all in 15 minutes or more.
        names = ("capsule", "convolution", "hardware", "losses", "metrics")
        names = (*names, "network", "reconstruction", "routing")
        files = [f"layers/{name}_test.py" for name in names]
    process = start(backend, "-m", "pytest", "-q", *files)
    code, output, errors = commands.finish(process, timeout=1500)
    assert code == 0, output + errors


def test_a_training_goes_on_in_another_precision(tmp_path, capsys):
    folder = tmp_path / "float32"
    experiment.run(Config(summary_dir=str(folder), max_steps=20, **SMALL))
    float32 = losses(folder)
    for policy in ("mixed_bfloat16", "mixed_float16"):
        folder = tmp_path / policy
        config = Config(summary_dir=str(folder), max_steps=10, **SMALL)
        experiment.run(dataclasses.replace(config, dtype_policy=policy))
        experiment.run(dataclasses.replace(config, max_steps=20))
        note = f"Note: dtype_policy was {policy} and is float32"
        assert note in capsys.readouterr().out
        mixed = losses(folder)
        np.testing.assert_allclose(mixed, float32, rtol=0.03)
        # It is not merely float32 under another name.
        assert mixed[:10] != pytest.approx(float32[:10], rel=1e-6)


ERRORS = """
import json
import sys
import devices
from old.errors import UserError
for settings in json.loads(sys.argv[1]):
    try:
        with devices.use(devices.Settings(**settings), "x"):
            print("none")
    except UserError as error:
        print(error)
"""


def errors_of(backend, *settings):
    """The message of each of some settings, one after the other."""
    settings = json.dumps(settings)
    return output_of(start(backend, "-c", ERRORS, settings)).splitlines()


@pytest.mark.parametrize("backend", ALL)
def test_devices_that_are_not_there(backend):
    gpu, limit, two, index, deterministic = errors_of(
        backend,
        {"device": "gpu:1"},
        {"gpu_memory_limit": 100},
        {"num_gpus": 2},
        {"process_index": 1},
        {"device": "cpu", "deterministic": True},
    )
    assert gpu.startswith("--device=gpu:1")
    assert "0 GPUs" in limit
    assert limit.startswith("--gpu_memory_limit=100")
    assert "--num_gpus=2" in two
    assert "need --num_processes" in index
    is_tensorflow = backend == "tensorflow"
    assert is_tensorflow != ("needs KERAS_BACKEND=tens" in deterministic)


def test_messages_name_what_was_asked_for():
    settings = Settings(device="gpu:2", num_gpus=2, gpu_memory_limit=9)
    with pytest.raises(
        UserError,
        match="--device=gpu:2 --num_gpus=2 --gpu_memory_limit=9, but "
        "tensorflow finds 3 GPUs here",
    ):
        choice.require_gpus(settings, 3, 4)
    choice.require_gpus(settings, 4, 4)
    choice.require_gpus(Settings(), 0, 1)  # the CPU will do


ADDRESS = "10.0.0.1:1234"


@pytest.mark.parametrize(
    ("backend", "settings", "message"),
    [
        ("tensorflow", {}, "needs KERAS_BACKEND=jax; it is tensorflow"),
        ("jax", {}, "needs --coordinator_address"),
        ("jax", {"coordinator_address": ADDRESS}, "needs --process_index"),
        *(
            (
                "jax",
                {"coordinator_address": address, "process_index": 1},
                f"--coordinator_address={address} should be HOST:PORT",
            )
            for address in ("here:65536", "nowhere", "here:²")
        ),
        (
            "jax",
            {"coordinator_address": ADDRESS, "process_index": 2},
            "from 0 to 1; it is 2",
        ),
    ],
)
def test_wrong_clusters(monkeypatch, backend, settings, message):
    monkeypatch.setattr(keras.backend, "backend", lambda: backend)
    settings = Settings(num_processes=2, **settings)
    with (
        pytest.raises(UserError, match=message),
        cluster.joined(settings, "experiment.py"),
    ):
        pass


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (cluster.NUMBER_VARIABLE, "0", "=0 should be a number of at least 1"),
        (cluster.ADDRESS_VARIABLE, "there", "=there should be HOST:PORT"),
    ],
)
def test_wrong_values_of_the_environment(monkeypatch, name, value, message):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    monkeypatch.setenv(cluster.NUMBER_VARIABLE, "2")
    monkeypatch.setenv(cluster.INDEX_VARIABLE, "1")
    monkeypatch.setenv(name, value)
    with (
        pytest.raises(UserError, match=f"^{name}{message}"),
        cluster.joined(Settings(), "experiment.py"),
    ):
        pass


def test_a_first_process_that_cannot_be_reached(monkeypatch):
    monkeypatch.setattr(cluster, "START_TIMEOUT", 0.1)
    with pytest.raises(UserError, match=r"127.0.0.1:\d+ within 0.1 seconds"):
        cluster._wait_for_first(f"127.0.0.1:{free_port()}")


def test_a_batch_that_does_not_split():
    several = parallel.OneDevice()
    several.count = 2
    several.require_even_split(8)
    assert several.round_up(7) == 8
    with pytest.raises(UserError, match="--batch_size=7 cannot be split even"):
        several.require_even_split(7)
