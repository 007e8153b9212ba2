"""Saving, shapes, weights and mixed precision of all layers."""

import keras
import numpy as np
import pytest
from keras import ops

import layers

DECODER = layers.Reconstruction(2, 3, 1, name="decoder")
RULE = layers.RoutingRule(logits="replace", squash_constant=0.5)
ROUTED = {"num_capsules", "num_atoms", "num_routing", "leaky", "rule"} | {
    "use_bias",
    "kernel_initializer",
}
EM = {"num_capsules", "num_routing", "final_lambda", "min_variance"} | {
    "damping",
    "kernel_stddev",
}
POSES = (5, 4, 2, 16)
# A layer, its input shapes without the batch, the names of its weights, their
# count, and the keys of its configuration.
CASES = [
    (
        layers.Capsule(3, 4, num_routing=2, leaky=True),
        [(5, 2)],
        {"weights": 120, "biases": 12},
        ROUTED | {"share_weights"},
    ),
    (
        layers.Capsule(3, 4, share_weights=True, use_bias=False, rule=RULE),
        [(5, 2)],
        {"weights": 24},
        ROUTED | {"share_weights"},
    ),
    (
        layers.ConvSlimCapsule(3, 4, 3, 2, "SAME", 2, True),
        [(6, 5, 2, 3)],
        {"weights": 324, "biases": 12},
        ROUTED | {"kernel_size", "strides", "padding"},
    ),
    (layers.Length(), [(3, 4)], {}, set()),
    (
        layers.PrimaryMatrixCapsules(3),
        [(4, 5, 2)],
        {
            "pose_weights": 96,
            "pose_biases": 48,
            "activation_weights": 6,
            "activation_biases": 3,
        },
        {"num_capsules"},
    ),
    (
        layers.ConvMatrixCapsules(2, 3, 2, "SAME", 2, damping=0.1),
        [POSES, POSES[:-1]],
        {"weights": 576, "beta_u": 2, "beta_a": 2},
        EM | {"kernel_size", "strides", "padding", "normalise"},
    ),
    (
        layers.ClassMatrixCapsules(3, 2, coordinates=False, kernel_stddev=1.0),
        [POSES, POSES[:-1]],
        {"weights": 96, "beta_u": 3, "beta_a": 3},
        EM | {"coordinates"},
    ),
    (
        layers.SelfRoutingCapsules(3, 4, 3, 2, "SAME"),
        [(*POSES[:-1], 2), POSES[:-1]],
        {"routing_weights": 108, "routing_biases": 54, "pose_weights": 432},
        {"num_capsules", "num_atoms", "kernel_size", "strides", "padding"},
    ),
    (
        layers.DepthwiseCapsule(2, (2, 3)),
        [(2, 3, 4)],
        {"kernel": 24, "bias": 4},
        {"num_atoms", "kernel_size"},
    ),
    (
        layers.SelfAttentionCapsule(3, 4),
        [(5, 2)],
        {"weights": 120, "biases": 15},
        {"num_capsules", "num_atoms"},
    ),
]
IDS = [f"{type(case[0]).__name__}-{i}" for i, case in enumerate(CASES)]


def batch(shapes):
    rng = np.random.default_rng(2)
    arrays = [
        rng.uniform(size=(2, *shape)).astype("float32") for shape in shapes
    ]
    return arrays if len(arrays) > 1 else arrays[0]


def to_numpy(outputs):
    return [
        ops.convert_to_numpy(ops.cast(output, "float32"))
        for output in keras.tree.flatten(outputs)
    ]


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize(("layer", "shapes", "weights", "keys"), CASES, ids=IDS)
def test_layers_are_saved(layer, shapes, weights, keys, policy, tmp_path):
    config = {**layer.get_config(), "dtype": policy}
    assert set(config) == keys | {"name", "trainable", "dtype"}
    layer = type(layer).from_config(config)
    inputs = [keras.Input(shape) for shape in shapes]
    inputs = inputs if len(inputs) > 1 else inputs[0]
    symbolic = layer(inputs)
    model = keras.Model(inputs, symbolic)
    named = {w.name: int(np.prod(w.shape)) for w in layer.weights}
    assert named == weights
    assert {w.dtype for w in layer.weights} <= {"float32"}
    x = batch(shapes)
    outputs = keras.tree.flatten(model(x))
    for tensor, expected in zip(
        outputs, keras.tree.flatten(symbolic), strict=True
    ):
        assert tuple(tensor.shape)[1:] == expected.shape[1:]
        dtype = keras.backend.standardize_dtype(tensor.dtype)
        assert dtype == expected.dtype
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.layers[-1].get_config() == layer.get_config()
    for ours, theirs in zip(
        to_numpy(loaded(x)), to_numpy(outputs), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("layer", "shapes"), [case[:2] for case in CASES[:-1]], ids=IDS[:-1]
)
def test_mixed_bfloat16_is_close(layer, shapes):
    x = batch(shapes)
    full, mixed = (
        type(layer).from_config({**layer.get_config(), "dtype": policy})
        for policy in ("float32", "mixed_bfloat16")
    )
    expected = to_numpy(full(x))
    mixed(x)
    mixed.set_weights(full.get_weights())
    for ours, theirs in zip(to_numpy(mixed(x)), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=0.03)


def test_a_decoder_is_saved(tmp_path):
    capsules = keras.Input((4, 5))
    labels = keras.Input((), dtype="int32")
    model = keras.Model([capsules, labels], DECODER(capsules, labels))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    x = [batch([(4, 5)]), np.array([2, 0])]
    np.testing.assert_array_equal(
        ops.convert_to_numpy(loaded(x)), ops.convert_to_numpy(model(x))
    )
    paths = [w.path for w in DECODER.weights]
    assert paths == [
        f"decoder/recons_{number}/{kind}"
        for number in (1, 2, 3)
        for kind in ("kernel", "bias")
    ]
