import json

import numpy as np
import pytest
from keras import ops

import layers
from benchmarks import (
    convolution_benchmark,
    em_benchmark,
    measuring,
    train_benchmark,
)
from benchmarks.naive import NaiveCapsule, NaiveConvSlimCapsule
from benchmarks.naive_em import naive_model
from input_data import features as keys
from models.registry import build_model
from testing.small_models import small_hparams


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
def test_naive_layers_equal_ours(ours, naive, shape, leaky):
    config = {**ours.get_config(), "leaky": leaky}
    ours, naive = type(ours).from_config(config), naive.from_config(config)
    ours.build(shape)
    naive.build(shape)
    naive.set_weights(ours.get_weights())
    x = np.random.default_rng(0).normal(size=shape).astype("float32")
    results = [ops.convert_to_numpy(layer(x)) for layer in (naive, ours)]
    np.testing.assert_allclose(*results, atol=1e-6)


def test_naive_em_equals_ours():
    shape = keys.ImageShape(17, 17, 1, 2)
    hparams = small_hparams("matrix_capsule", routing=2)
    ours = build_model("matrix_capsule", shape, 1, hparams)
    naive = naive_model(shape, hparams)
    naive.set_weights(ours.get_weights())
    x, _ = train_benchmark.examples(shape, 3, 1)
    for name, value in naive(x).items():
        np.testing.assert_allclose(value, ours(x)[name], rtol=1e-3, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "flags"),
    [
        (
            train_benchmark,
            "--policies=float32 --batch_size=2 --steps=1 --rounds=1 "
            "--hparams_override=num_prime_capsules=2,conv_channels=2",
        ),
        (
            convolution_benchmark,
            "--size=9 --channels=2 --kernel=3 --filters=2 --stride=1 --batch=2 "
            "--rounds=1",
        ),
        (em_benchmark, "--batch_size=2 --steps=1 --rounds=1 --routing=1"),
    ],
)
def test_benchmarks_write_rows(module, flags, tmp_path, capsys):
    path = tmp_path / "rows.json"
    arguments = [*flags.split(), f"--json={path}"]
    measuring.run(module.measure, module.FLAGS, "", arguments)
    rows = json.loads(path.read_text())["rows"]
    assert len(capsys.readouterr().out.splitlines()) == len(rows) + 1 > 1
