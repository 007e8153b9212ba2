import functools
import json
import os
import types

import keras
import numpy as np
import pytest
from keras import ops

import layers
from benchmarks import (
    checkpoint_benchmark,
    command_line,
    convolution_benchmark,
    demo_benchmark,
    em_benchmark,
    input_benchmark,
    measuring,
    networks,
    profile_benchmark,
    summary_benchmark,
    train_benchmark,
)
from benchmarks.naive import NaiveCapsule, NaiveConvSlimCapsule
from benchmarks.naive_em import naive_model
from input_data import features as keys
from models.capsule import HParams
from models.hparams import parse_overrides
from models.matrix_capsule import HParams as MatrixHParams
from models.registry import build_model
from old import processes
from old.errors import UserError
from testing import browser

OURS = networks.NETWORKS["ours"]
TINY_FLAGS = (
    "--hparams_override=num_prime_capsules=2,conv_channels=2",
    "--batch_size=2",
)
TINY = networks.Setting(
    keys.ImageShape(20, 19, 2, 3),
    HParams(num_prime_capsules=2, conv_channels=4),
    batch_size=3,
)


@pytest.mark.parametrize("leaky", [False, True])
@pytest.mark.parametrize(
    ("ours", "naive", "shape"),
    [
        (layers.Capsule(3, 4), NaiveCapsule, (2, 5, 2)),
        (
            layers.ConvSlimCapsule(3, 4, 3, strides=2),
            NaiveConvSlimCapsule,
            (2, 7, 5, 2, 3),
        ),
    ],
)
def test_naive_layers_give_what_ours_give(ours, naive, shape, leaky):
    config = {**ours.get_config(), "leaky": leaky}
    ours, naive = type(ours).from_config(config), naive.from_config(config)
    ours.build(shape)
    naive.build(shape)
    naive.set_weights(ours.get_weights())
    x = np.random.default_rng(0).normal(size=shape).astype("float32")
    np.testing.assert_allclose(
        ops.convert_to_numpy(naive(x)),
        ops.convert_to_numpy(ours(x)),
        atol=1e-6,
    )


def test_the_naive_step_gives_the_losses_of_ours():
    models = [networks.NETWORKS[name](TINY) for name in ("ours", "naive")]
    kinds = [type(model.capsule2) for model in models]
    assert kinds == [layers.Capsule, NaiveCapsule]
    models[1].set_weights(models[0].get_weights())
    x, y = networks.examples(TINY, 1)
    ours, naive = (
        [model.train_on_batch(x, y) for _ in range(3)] for model in models
    )
    np.testing.assert_allclose(naive, ours, rtol=1e-4)
    for a, b in zip(*(m.get_weights() for m in models), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)
    outputs = [model.predict(x, verbose=0) for model in models]
    for name in outputs[0]:
        np.testing.assert_allclose(
            outputs[1][name], outputs[0][name], atol=1e-4
        )


def test_the_convolutions_alone_have_the_models_convolutions():
    alone = networks.NETWORKS["convolutions"](TINY)
    x, y = networks.examples(TINY, 1)
    before = alone.predict(x, verbose=0)
    whole = networks.NETWORKS["ours"](TINY)
    kernels = [w.shape for w in whole.weights if len(w.shape) == 4]
    assert [w.shape for w in alone.weights if len(w.shape) == 4] == kernels
    loss = alone.train_on_batch(x, y)
    np.testing.assert_allclose(loss, before.mean(), rtol=1e-5)


def test_seconds_are_those_of_one_step(monkeypatch):
    times = iter([10.0, 16.0])
    monkeypatch.setattr(measuring.time, "perf_counter", lambda: next(times))
    clock = measuring._Clock()
    for batch in range(3):
        clock.on_train_batch_begin(batch)
        clock.on_train_batch_end(batch, {"loss": np.ones(())})
    clock.on_train_end()
    assert clock.seconds / clock.steps == 2.0


def test_measurements_alternate_and_ratios_are_by_round():
    calls = []
    numbers = {"a": iter([9.0, 1.0, 2.0, 8.0]), "b": iter([9.0, 2.0, 2.0, 2.0])}

    def measure(name):
        calls.append(name)
        return next(numbers[name])

    found = measuring.alternate(
        {name: lambda name=name: measure(name) for name in "ab"}, rounds=3
    )
    assert "".join(calls) == "ab" + "abbaab"
    assert found == {"a": [1.0, 2.0, 8.0], "b": [2.0, 2.0, 2.0]}
    assert measuring.median_ratio(found["a"], found["b"]) == 1.0


def test_time_of_operations_side_by_side_is_shared():
    scope = "capsule_model_1/"
    operations = [
        (f"{scope}conv1_1/Relu", 10, 20),
        (f"gradient_tape/{scope}conv1_1/convolution/Conv2D", 15, 35),
        (f"{scope}capsule2/MatMul_1", 15, 20),
        (f"{scope}Square", 40, 43),
        ("adam/Mul_10", 43, 50),
        ("div_no_nan", 43, 50),
    ]
    # 10-15 conv1 alone, 15-20 a third each, 20-35 the gradient, 35-40 none.
    assert profile_benchmark.by_part(operations, {"conv1", "capsule2"}) == {
        "conv1": pytest.approx(5 + 5 / 3),
        "conv1 gradient": pytest.approx(5 / 3 + 15),
        "capsule2": pytest.approx(5 / 3),
        "no operation": 5,
        "rest": 3 + 3.5,
        "optimiser": 3.5,
    }


def in_this_process(function, *arguments):
    return function(*arguments)


@functools.cache
def compiled(setting, policy):
    assert policy == keras.config.dtype_policy().name
    return OURS(setting)


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs a benchmark with flags; gives the rows that it wrote."""
    # Processes of their own would each import TensorFlow first.
    monkeypatch.setattr(processes, "in_own_process", in_this_process)
    # Tracing the functions of a model takes seconds.
    monkeypatch.setitem(
        networks.NETWORKS,
        "ours",
        lambda setting: compiled(setting, keras.config.dtype_policy().name),
    )
    policy = keras.config.dtype_policy()
    file = tmp_path / "result.json"

    def function(benchmark, *flags):
        command_line.run(
            benchmark.measure,
            benchmark.FLAGS,
            benchmark.__doc__,
            ["--rounds=2", *flags, f"--json={file}"],
        )
        result = json.loads(file.read_text())
        assert result["machine"]["cores"] >= 1
        *_, names = capsys.readouterr().out.splitlines()[: -len(result["rows"])]
        assert names.split() == " ".join(result["rows"][0]).split()
        for row in result["rows"]:
            for value in row.values():
                assert value is None or isinstance(value, str) or value > 0
        return result["rows"]

    yield function
    keras.config.set_dtype_policy(policy)


@pytest.mark.parametrize(
    "flags",
    [["--inference"], []] if keras.backend.backend() == "tensorflow" else [],
)
def test_a_profile_has_every_layer(flags, run):
    rows = run(
        profile_benchmark, *TINY_FLAGS, "--steps=2", "--rounds=1", *flags
    )
    layers = {"conv1", "conv_capsule1", "capsule2", "recons"}
    expected = layers | {"no operation", "rest"}
    if not flags:
        expected |= {f"{layer} gradient" for layer in layers} | {"optimiser"}
    assert {row["part"] for row in rows} == expected
    assert sum(row["%"] for row in rows) == pytest.approx(100)


def test_training_and_inference_beside_the_convolutions(run, monkeypatch):
    flags = [*TINY_FLAGS, "--steps=1"]
    rows = run(
        train_benchmark,
        *flags,
        "--networks=convolutions,ours",
        "--policies=float32",
    )
    assert [row["network"] for row in rows] == ["convolutions", "ours"]
    assert rows[0]["of convolutions"] == 1
    assert rows[1]["of naive"] is None
    # Peaks were measured above.
    monkeypatch.setattr(train_benchmark, "_peak", lambda *_: 1.0)
    flags += ["--image_size=20", "--depth=3"]
    rows = run(train_benchmark, *flags, "--inference")
    assert [(row["policy"], row["network"]) for row in rows] == [
        (policy, name)
        for policy in ("float32", "mixed_bfloat16")
        for name in ("convolutions", "naive", "ours")
    ]


@pytest.mark.parametrize(
    ("more", "tiles"),
    [
        ([], ["6x2"]),
        (["--inference"], ["6x2"]),
        (["--policy=mixed_bfloat16"], ["2x2"]),
        (["--tiles"], ["6x6", "3x3", "2x2"]),
    ],
)
def test_the_direct_convolution_beside_toom_cook(run, more, tiles):
    sizes = ("size=8", "channels=2", "kernel=3", "filters=2", "stride=1")
    flags = [f"--{size}" for size in (*sizes, "batch=2", "steps=1")]
    rows = run(convolution_benchmark, *flags, *more)
    assert [row["tile"] for row in rows] == tiles
    assert all(row["measured"] > 0 and row["expected"] > 0 for row in rows)


def test_numbers_are_varied_one_at_a_time(run):
    values = types.SimpleNamespace(iterations=(1, 3), inputs=(6, 9))
    cases = command_line.varied({"iterations": 3, "inputs": 1152}, values)
    sizes = [(case["iterations"], case["inputs"]) for case in cases]
    assert sizes == [(3, 6), (1, 6), (3, 9)]
    with pytest.raises(SystemExit, match="nothing was measured"):
        command_line.run(lambda flags: [], {}, "", [])


@pytest.mark.parametrize(
    ("benchmark", "flag"),
    [
        (em_benchmark, "--kinds=my"),
        (em_benchmark, "--networks=my"),
        (train_benchmark, "--networks=my"),
        (train_benchmark, "--policies=my"),
        (profile_benchmark, "--policy=my"),
    ],
)
def test_a_wrong_name_is_told_before_anything_is_measured(run, benchmark, flag):
    with pytest.raises(SystemExit, match="unknown .* 'my'; valid names: "):
        run(benchmark, flag)


@pytest.mark.parametrize("flag", ["rounds", "steps"])
def test_nothing_is_measured_no_times(run, capsys, flag):
    with pytest.raises(SystemExit):
        run(train_benchmark, f"--{flag}=0")
    assert f"--{flag} must be at least 1" in capsys.readouterr().err


def test_naive_matrix_capsules_give_what_ours_give():
    shape = keys.ImageShape(14, 14, 1, 3)
    hparams = MatrixHParams(
        conv_channels=4,
        primary_types=2,
        first_types=3,
        second_types=2,
        padding="SAME",
        conv_lambda=1.0,
        class_lambda=1.0,
    )
    ours = build_model("matrix_capsule", shape, 1, hparams)
    naive = naive_model(shape, hparams)
    naive.set_weights(ours.get_weights())
    x = np.random.default_rng(0).normal(size=(2, 14, 14, 1)).astype("float32")
    ours, naive = (model({keys.IMAGES: x}) for model in (ours, naive))
    for name in ours:
        np.testing.assert_allclose(
            *(ops.convert_to_numpy(o[name]) for o in (naive, ours)), atol=1e-5
        )


def test_matrix_capsules_beside_their_equations(run, monkeypatch):
    measured = {("ours", 1): (1, 100), ("ours", 4): (2, 150)}
    measured["naive", 4] = (6, 300)
    monkeypatch.setattr(
        em_benchmark,
        "_measured",
        lambda kind, values, batch_size, steps: measured[kind, batch_size],
    )
    ours, naive = run(em_benchmark, "--batch_size=4")
    assert (ours["of naive"], naive["of naive"]) == (3, 1)
    assert (ours["MB more"], naive["MB more"]) == (50, 200)
    assert ours["memory of naive"] == 0.25


@pytest.mark.slow
@pytest.mark.skipif(browser.find() is None, reason="no Chromium is installed")
def test_strokes_on_the_page(run):
    rows = run(demo_benchmark, *TINY_FLAGS, "--rounds=1")
    assert [row["drawn"] for row in rows] == ["dot", "stroke"]
    assert all(row["median ms"] > 0 for row in rows)


def test_shares_of_a_training(run):
    (row,) = run(checkpoint_benchmark, *TINY_FLAGS, "--steps=1")
    assert row["% of 1500 steps"] == pytest.approx(
        100 * row["save s"] / (1500 * row["step s"])
    )
    rows = run(summary_benchmark, *TINY_FLAGS, "--summary_step=1")
    assert [row["every"] for row in rows] == [1, 10]


def test_input_pipelines(run, monkeypatch):
    monkeypatch.setattr(input_benchmark, "NUM_IMAGES", 200)
    monkeypatch.setattr(input_benchmark, "NUM_RANDOM", 200)
    affinity = os.sched_getaffinity(0)
    try:
        rows = run(input_benchmark, "--seconds=0.001", "--records=20")
    finally:
        os.sched_setaffinity(0, affinity)
    assert len(rows) == len({row["what"] for row in rows}) == 12


def test_a_process_of_its_own_gives_what_the_function_gives():
    assert processes.in_own_process(abs, -3) == 3
    message = "its process ended by itself, with exit code 7"
    with pytest.raises(UserError, match=message):
        processes.in_own_process(os._exit, 7)
    with pytest.raises(UserError) as caught:
        processes.in_own_process(parse_overrides, MatrixHParams, "rooting=1")
    # A list of the valid names, line by line.
    assert len(str(caught.value).split("\n")) > 5
