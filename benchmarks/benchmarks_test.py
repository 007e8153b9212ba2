import json

import keras
import numpy as np
import pytest
from keras import ops

import layers
from benchmarks import (
    measuring,
    networks,
    profile_benchmark,
    routing_benchmark,
    scaling_benchmark,
    train_benchmark,
)
from benchmarks.naive import NaiveCapsule, NaiveConvSlimCapsule
from input_data import features as keys
from models.capsule import HParams

OVERRIDE = "num_prime_capsules=2,conv_channels=2"
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


@pytest.mark.parametrize(
    "inference",
    [False, True] if keras.backend.backend() == "tensorflow" else [],
)
def test_a_profile_has_every_layer(inference, tmp_path, capsys):
    file = tmp_path / "result.json"
    profile_benchmark.main(
        [
            f"--hparams_override={OVERRIDE}",
            "--batch_size=2",
            "--steps=2",
            "--rounds=2",
            f"--json={file}",
            *(["--inference"] if inference else []),
        ]
    )
    rows = json.loads(file.read_text())["rows"]
    parts = {row["part"] for row in rows}
    layers = {"conv1", "conv_capsule1", "capsule2", "recons"}
    expected = layers | {"no operation", "rest"}
    if not inference:
        expected |= {f"{layer} gradient" for layer in layers} | {"optimiser"}
    assert parts == expected
    assert sum(row["%"] for row in rows) == pytest.approx(100)
    assert len(capsys.readouterr().out.splitlines()) == 2 + len(rows)


def in_this_process(function, *arguments):
    return function(*arguments)


@pytest.mark.parametrize(
    ("benchmark", "arguments", "num_rows"),
    [
        (
            train_benchmark,
            [f"--hparams_override={OVERRIDE}", "--policies=mixed_bfloat16"],
            3,
        ),
        (
            train_benchmark,
            [
                f"--hparams_override={OVERRIDE}",
                "--policies=float32",
                "--inference",
            ],
            3,
        ),
        (
            routing_benchmark,
            ["--inputs=6,9", "--outputs=2", "--batch=2", "--iterations=1,3"],
            3,
        ),
        (
            scaling_benchmark,
            [
                f"--hparams_override={OVERRIDE}",
                "--devices=1",
                "--batch_sizes=2,4",
                "--image_sizes=18",
            ],
            4,
        ),
    ],
)
def test_benchmarks_run(
    benchmark, arguments, num_rows, tmp_path, monkeypatch, capsys
):
    # Processes of their own would each import TensorFlow first.
    monkeypatch.setattr(measuring, "in_own_process", in_this_process)
    sizes = ["--steps=1", "--rounds=1"]
    if benchmark is not routing_benchmark:
        sizes.append("--batch_size=2")
    file = tmp_path / "result.json"
    policy = keras.config.dtype_policy()
    try:
        benchmark.main([*arguments, *sizes, f"--json={file}"])
    finally:
        keras.config.set_dtype_policy(policy)
    result = json.loads(file.read_text())
    assert len(result["rows"]) == num_rows
    assert result["machine"]["cores"] >= 1
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 1 + 1 + num_rows  # machine, names of columns
    for row in result["rows"]:
        for value in row.values():
            assert value is None or isinstance(value, str) or value > 0


def test_a_process_of_its_own_gives_what_the_function_gives():
    assert measuring.in_own_process(abs, -3) == 3
