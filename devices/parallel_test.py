"""Backends, devices and processes, by the command line as users start it.

The backends that are not installed are left out of the lists below.
"""

import importlib.util
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf

ROOT = pathlib.Path(__file__).parent.parent
OTHERS = [name for name in ("jax", "torch") if importlib.util.find_spec(name)]
ALL = ["tensorflow", *OTHERS]
JAX = [name for name in OTHERS if name == "jax"]
SMALL = [
    "--hparams_override=num_prime_capsules=2,conv_channels=8",
    "--batch_size=8",
    "--summary_step=1",
]


def start(backend, *arguments):
    return subprocess.Popen(
        [sys.executable, "experiment.py", *map(str, arguments)],
        cwd=ROOT,
        env={
            **os.environ,
            "KERAS_BACKEND": backend,
            # Without GPUs also where there are some.
            "CUDA_VISIBLE_DEVICES": "",
            "JAX_PLATFORMS": "cpu",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(backend, *arguments):
    """The output; the run must succeed."""
    process = start(backend, *arguments)
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return output


def error_of(backend, *arguments):
    """The last line of the errors; the run must fail without a traceback."""
    process = start(backend, *arguments)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 1
    assert "Traceback" not in errors
    return errors.strip().split("\n")[-1]


def losses(summary_dir):
    """The total loss by step."""
    found = {}
    for path in (summary_dir / "train").glob("events*"):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                if value.tag == "total_loss":
                    found[event.step] = float(tf.make_ndarray(value.tensor))
    return [found[step] for step in sorted(found)]


def wrong(output):
    (count,) = re.findall(r"Total wrong predictions: (\d+)", output)
    return int(count)


def train_and_evaluate(backend, summary_dir, *arguments):
    """Losses of 20 steps, and wrong predictions of an odd number of images."""
    flags = [f"--summary_dir={summary_dir}", *arguments]
    run(backend, *flags, *SMALL, "--max_steps=20")
    output = run(
        backend,
        *flags,
        "--train=false",
        "--eval_size=357",
        f"--checkpoint={summary_dir}/train/model.ckpt-20",
    )
    return losses(summary_dir), wrong(output)


@pytest.mark.parametrize("backend", ["tensorflow", *JAX])
def test_two_devices_are_as_one(tmp_path, backend):
    one, wrong_of_one = train_and_evaluate(backend, tmp_path / "one")
    two, wrong_of_two = train_and_evaluate(
        backend, tmp_path / "two", "--device=cpu", "--num_gpus=2"
    )
    assert len(one) == 20
    assert max(one) > min(one) + 1e-3  # it learned something
    np.testing.assert_allclose(one, two, rtol=0, atol=1e-5)
    assert wrong_of_one == wrong_of_two


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def start_two(backend, *arguments):
    address = f"127.0.0.1:{free_port()}"
    return [
        start(
            backend,
            f"--coordinator_address={address}",
            "--num_processes=2",
            f"--process_index={index}",
            *arguments,
        )
        for index in range(2)
    ]


def run_two(backend, *arguments):
    """The first process's output; both must succeed."""
    processes = start_two(backend, *arguments)
    results = [process.communicate(timeout=300) for process in processes]
    for process, (_, errors) in zip(processes, results, strict=True):
        assert process.returncode == 0, errors
    assert "wrong predictions" not in results[1][0]
    return results[0][0]


@pytest.mark.parametrize("backend", JAX)
def test_two_processes_are_as_one(tmp_path, backend):
    one, wrong_of_one = train_and_evaluate(backend, tmp_path / "one")
    flags = [f"--summary_dir={tmp_path}/two", *SMALL]
    run_two(backend, *flags, "--max_steps=10")
    assert "Resuming from" in run_two(backend, *flags, "--max_steps=20")
    two = losses(tmp_path / "two")
    np.testing.assert_allclose(one, two, rtol=0, atol=1e-5)
    output = run_two(
        backend,
        f"--checkpoint={tmp_path}/two/train/model.ckpt-20",
        "--train=false",
        "--eval_size=357",
    )
    assert wrong(output) == wrong_of_one


def wait_for(path, processes):
    for _ in range(1200):
        if path.exists():
            return
        assert all(process.poll() is None for process in processes)
        time.sleep(0.1)
    raise AssertionError(f"{path} never came")


@pytest.mark.parametrize("backend", JAX)
@pytest.mark.parametrize("killed", [0, 1])
def test_a_killed_process_ends_the_other(tmp_path, backend, killed):
    flags = [f"--summary_dir={tmp_path}", *SMALL, "--save_step=2"]
    processes = start_two(backend, *flags, "--max_steps=100000")
    wait_for(tmp_path / "train" / "model.ckpt-4", processes)
    processes[killed].kill()
    began = time.monotonic()
    _, errors = processes[1 - killed].communicate(timeout=120)
    assert time.monotonic() - began < 60
    assert processes[1 - killed].returncode not in (0, None)
    # Ours, or JAX's own if it is first.
    assert re.search("another one has died|another task died", errors)
    processes[killed].communicate()
    steps = [
        int(path.name.split("-")[1])
        for path in (tmp_path / "train").glob("model.ckpt-*")
    ]
    output = run_two(backend, *flags, f"--max_steps={max(steps) + 2}")
    assert f"Resuming from {tmp_path}/train/model.ckpt-{max(steps)}" in output


@pytest.mark.parametrize("backend", JAX)
def test_a_signal_to_one_process_stops_both(tmp_path, backend):
    flags = [f"--summary_dir={tmp_path}", *SMALL, "--save_step=2"]
    processes = start_two(backend, *flags, "--max_steps=100000")
    wait_for(tmp_path / "train" / "model.ckpt-4", processes)
    processes[1].send_signal(signal.SIGTERM)
    outputs = [process.communicate(timeout=120)[0] for process in processes]
    assert [p.returncode for p in processes] == [128 + signal.SIGTERM] * 2
    saved = re.findall(r"Stopped at step \d+, saved (\S+)", "".join(outputs))
    assert len(saved) == 2
    assert saved[0] == saved[1]
    assert pathlib.Path(saved[0]).is_dir()


@pytest.mark.parametrize("backend", OTHERS)
def test_checkpoints_go_from_one_backend_to_another(tmp_path, backend):
    flags = [f"--summary_dir={tmp_path}", *SMALL, "--save_step=3"]
    run(backend, *flags, "--max_steps=3")
    assert "Resuming from" in run("tensorflow", *flags, "--max_steps=6")
    assert "Resuming from" in run(backend, *flags, "--max_steps=9")
    assert len(losses(tmp_path)) == 9
    counts = {
        wrong(
            run(
                name,
                "--train=false",
                f"--checkpoint={tmp_path}/train/model.ckpt-9",
            )
        )
        for name in ("tensorflow", backend)
    }
    assert len(counts) == 1


@pytest.mark.parametrize("backend", OTHERS)
def test_layers_on_the_other_backends(backend):
    process = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "layers", "models"],
        cwd=ROOT,
        env={**os.environ, "KERAS_BACKEND": backend},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stdout


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_a_training_goes_on_in_another_precision(tmp_path, policy):
    flags = [f"--summary_dir={tmp_path}", *SMALL]
    run("tensorflow", *flags, "--max_steps=10", f"--dtype_policy={policy}")
    output = run("tensorflow", *flags, "--max_steps=20")
    assert f"Note: dtype_policy was {policy} and is float32" in output
    float32, _ = train_and_evaluate("tensorflow", tmp_path / "float32")
    mixed = losses(tmp_path)
    np.testing.assert_allclose(mixed, float32, rtol=0.03)
    # It is not merely float32 under another name.
    assert mixed[:10] != float32[:10]


@pytest.mark.parametrize("backend", ALL)
def test_devices_that_are_not_there(tmp_path, backend):
    flags = [f"--summary_dir={tmp_path}", *SMALL]
    assert "--device=gpu:1" in error_of(backend, *flags, "--device=gpu:1")
    assert "0 GPUs" in error_of(backend, *flags, "--gpu_memory_limit=100")
    message = error_of(backend, *flags, "--num_gpus=2")
    assert "--num_gpus=2" in message
    assert not list(tmp_path.iterdir())


def test_wrong_clusters(tmp_path):
    flags = [f"--summary_dir={tmp_path}", *SMALL]
    assert "needs KERAS_BACKEND=jax" in error_of(
        "tensorflow", *flags, "--num_processes=2"
    )
    assert "need --num_processes" in error_of(
        "tensorflow", *flags, "--process_index=1"
    )


@pytest.mark.parametrize("backend", JAX)
def test_wrong_clusters_on_jax(tmp_path, backend):
    flags = [f"--summary_dir={tmp_path}", *SMALL, "--num_processes=2"]
    assert "needs --coordinator_address" in error_of(backend, *flags)
    assert "--coordinator_address=here:65536 should be HOST:PORT" in error_of(
        backend,
        *flags,
        "--coordinator_address=here:65536",
        "--process_index=1",
    )
    flags.append("--coordinator_address=nowhere")
    assert "needs --process_index" in error_of(backend, *flags)
    assert "should be HOST:PORT" in error_of(
        backend, *flags, "--process_index=0"
    )


def test_a_first_process_that_cannot_be_reached(monkeypatch):
    from common.errors import UserError
    from devices import cluster

    monkeypatch.setattr(cluster, "START_TIMEOUT", 0.1)
    with pytest.raises(UserError, match=r"127.0.0.1:\d+ within 0.1 seconds"):
        cluster._wait_for_first(f"127.0.0.1:{free_port()}")


def test_a_batch_that_does_not_split(tmp_path):
    message = error_of(
        "tensorflow",
        f"--summary_dir={tmp_path}",
        "--device=cpu",
        "--num_gpus=2",
        "--batch_size=7",
    )
    assert "--batch_size=7 cannot be split evenly over 2 devices" in message
