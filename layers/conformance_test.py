"""What holds for all layers: shapes, dtypes, masks, weights, saving."""

import collections
import inspect

import keras
import numpy as np
import pytest
from keras import ops
from keras.src.backend.common.masking import get_keras_mask, set_keras_mask
from keras.src.testing import TestCase

import layers
from testing.gradients import to_numpy

RULE = layers.RoutingRule(logits="replace", squash_constant=0.5)
POSES = (3, 2, 2, 16)
BOTH = [POSES, POSES[:-1]]
STATISTICS = "moving_mean 6, moving_variance 6"
VOTES = "vote_scale 6, vote 8, vote_bias 12, prediction 8, prediction_scale 6"
VOTES += ", prediction_bias 6, "
NORM = "gamma 16, beta 16, moving_mean 16, moving_variance 16"
BY_MAP = layers.MapRoutingRule(squash_over="map")
SHARED = {"share_weights": True, "use_bias": False, "rule": RULE}
FLAT, IMAGE, DECODED = [(5, 2)], [(4, 5, 2)], [(4, 5), ()]
CONVOLVED, SMALL = [(6, 5, 2, 3)], [(2, 3, 4)]
PRIMARY = "pose_weights 96, pose_biases 48, activation_weights 6"
ROUTED = "routing_weights 108, routing_biases 54, pose_weights 432"
EACH = "activation 10, activation_bias 5, match 15, match_bias 15, price 30"
ANY = "activation 2, activation_bias 1, match 3, match_bias 3, price 12"
# A layer, its input shapes without the batch, the names of its weights and
# their count.
CASES = [
    (layers.Capsule(3, 4, 2, leaky=True), FLAT, "weights 120, biases 12"),
    (layers.Capsule(3, 4, **SHARED), FLAT, "weights 24"),
    (
        layers.ConvSlimCapsule(3, 4, 3, 2, "SAME", 2, True),
        *(CONVOLVED, "weights 324, biases 12"),
    ),
    (
        layers.ConvSlimCapsule(3, 4, 2, rule=BY_MAP),
        *([(3, 4, 2, 3)], "weights 144, biases 12"),
    ),
    (layers.ConvCapsules(3, 4, strides=2), CONVOLVED, "kernel 648"),
    (layers.Length(), [(3, 4)], ""),
    (
        layers.PrimaryMatrixCapsules(3),
        *(IMAGE, f"{PRIMARY}, activation_biases 3"),
    ),
    (
        layers.ConvMatrixCapsules(2, 2, 2, "SAME", 2, damping=0.1),
        *(BOTH, "weights 256, beta_u 2, beta_a 2"),
    ),
    (
        layers.ClassMatrixCapsules(3, 2, coordinates=False, kernel_stddev=1.0),
        *(BOTH, "weights 96, beta_u 3, beta_a 3"),
    ),
    (
        layers.PrimaryVBCapsules(3),
        *(IMAGE, f"kernel 102, {STATISTICS}, gamma 6, beta 6"),
    ),
    (
        layers.ConvVBCapsules(3, 2, 2, "SAME", 2),
        *(BOTH, f"weights 384, {STATISTICS}"),
    ),
    (
        layers.ClassVBCapsules(3, 2, coordinates=False),
        *(BOTH, f"weights 96, {STATISTICS}"),
    ),
    (
        layers.InvertedAttentionCapsules(2, 2, 2),
        *([POSES], "weights 256, gamma 16, beta 16"),
    ),
    (
        layers.SelfRoutingCapsules(3, 4, 3, 2, "SAME"),
        [(*POSES[:-1], 2), POSES[:-1]],
        f"{ROUTED}, {NORM}".replace("16", "12"),
    ),
    (
        layers.HomogeneousCapsule(3, "zxy", 0.9),
        *(SMALL, f"kernel 72, beta 6, {STATISTICS}"),
    ),
    (layers.DepthwiseCapsule(2, (2, 3)), SMALL, "kernel 24, bias 4"),
    (layers.SelfAttentionCapsule(3, 4), FLAT, "weights 120, biases 15"),
    (layers.VectorRouting(3, 4), FLAT, VOTES + EACH),
    (
        layers.VectorRouting(3, 4, 3, normalize=False, any_number=True),
        *(FLAT, f"{VOTES}{ANY}, price_bias 6"),
    ),
    (layers.Conv2D(3, 2), IMAGE, "kernel 24, bias 3"),
    (
        layers.Reconstruction(2, 3, 1, name="decoder"),
        *(DECODED, "kernel 540672, bias 1542"),
    ),
    (
        layers.ConvReconstruction(2, 3, 1, name="decoder"),
        *(DECODED, f"kernel 10272, bias 161, {NORM}"),
    ),
]
IDS = [f"{type(case[0]).__name__}-{i}" for i, case in enumerate(CASES)]
all_layers = pytest.mark.parametrize(
    ("layer", "shapes"), [case[:2] for case in CASES], ids=IDS
)


def batch(shapes, size=2):
    """Numbers in [0, 2); those without axes are labels of two examples."""
    rng = np.random.default_rng(2)
    return [
        rng.uniform(0, 2, (size, *shape)).astype("float32")
        if shape
        else np.array([2, 0], "int32")[:size]
        for shape in shapes
    ]


def is_decoder(layer):
    return layer.name.startswith("decoder")


def call(layer, inputs):
    """A list of the outputs."""
    arguments = inputs if len(inputs) == 1 or is_decoder(layer) else [inputs]
    return keras.tree.flatten(layer(*arguments))


@pytest.mark.filterwarnings("ignore::UserWarning")  # of Keras' training
@all_layers
def test_layers_conform_to_keras(layer, shapes):
    config = layer.get_config()
    arguments = set(inspect.signature(type(layer)).parameters)
    assert arguments - {"args", "kwargs"} <= set(config)
    config.pop("dense", None)
    shapes = tuple((2, *shape) for shape in shapes)
    dtypes = None
    if is_decoder(layer):
        dtypes = {"capsules_shape": "float32", "labels_shape": "int32"}
        shapes = dict(zip(dtypes, shapes, strict=True))
    TestCase().run_layer_test(
        type(layer),
        config,
        input_shape=shapes if len(shapes) > 1 else shapes[0],
        input_dtype=dtypes,
        run_training_check=len(shapes) == 1,  # others are trained elsewhere
    )


@pytest.mark.skipif(keras.__version__ < "3.12", reason="renames operations")
def test_networks_conform_to_keras():
    arguments = {"input_shape": (9, 9, 1), "num_classes": 2, "padding": "SAME"}
    TestCase().run_layer_test(
        layers.CapsuleNetwork,
        arguments | {"conv_channels": 2, "num_prime_capsules": 1},
        input_shape=(2, 9, 9, 1),
        run_training_check=False,
    )


@pytest.mark.parametrize(("layer", "shapes", "weights"), CASES, ids=IDS)
def test_layers_are_saved_in_bfloat16(layer, shapes, weights, tmp_path):
    config = {**layer.get_config(), "dtype": "mixed_bfloat16"}
    for dense in config.get("dense", []):
        dense["dtype"] = "mixed_bfloat16"
    x = batch(shapes)
    full, mixed = map(type(layer).from_config, (layer.get_config(), config))
    expected = to_numpy(call(full, x))
    inputs = [
        keras.Input(shape, dtype="float32" if shape else "int32")
        for shape in shapes
    ]
    symbolic = call(mixed, inputs)
    mixed.set_weights(full.get_weights())
    model = keras.Model(inputs, symbolic)
    named = collections.Counter()
    for w in mixed.weights:
        named[w.name] += int(np.prod(w.shape))
    pairs = (pair.split() for pair in weights.split(", ") if pair)
    assert named == {name: int(count) for name, count in pairs}
    assert {w.dtype for w in mixed.weights} <= {"float32"}
    outputs = call(mixed, x)
    dtypes = [keras.backend.standardize_dtype(o.dtype) for o in outputs]
    assert [o.dtype for o in symbolic] == dtypes
    for ours, theirs in zip(to_numpy(outputs), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0.05, atol=0.08)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.layers[-1].get_config() == mixed.get_config()
    found = call(loaded.layers[-1], x)
    np.testing.assert_equal(to_numpy(found), to_numpy(outputs))


@all_layers
def test_frozen_layers_are_wholly_frozen(layer, shapes):
    frozen = type(layer).from_config(layer.get_config())
    frozen.trainable = False
    loaded = type(layer).from_config(frozen.get_config())
    for each in (layer, loaded):
        call(each, batch(shapes))
    assert not loaded.trainable_weights
    loaded.trainable = True
    assert len(loaded.trainable_weights) == len(layer.trainable_weights)


@all_layers
def test_numbers_of_any_dtype_and_empty_batches(layer, shapes):
    layer = type(layer).from_config(layer.get_config())
    x = [np.floor(values) for values in batch(shapes)]  # 0 or 1
    expected = call(layer, x)

    def cast(dtype):
        return [v.astype(dtype if v.ndim > 1 else "uint8") for v in x]

    for dtype in ("uint8", "int64", "bool"):
        found = call(layer, cast(dtype))
        assert [ours.dtype for ours in found] == [e.dtype for e in expected]
        np.testing.assert_equal(to_numpy(found), to_numpy(expected))
    types = layers.ConvMatrixCapsules, layers.ConvVBCapsules
    if keras.backend.backend() == "torch" and isinstance(layer, types):
        return  # they need images
    empty = batch(shapes, size=0)
    sizes = [values.shape for values in empty]
    sizes = sizes[0] if len(sizes) == 1 or is_decoder(layer) else sizes
    computed = layer.compute_output_shape(sizes)
    computed = [computed] if isinstance(computed[0], int) else computed
    assert list(computed) == [(0, *output.shape[1:]) for output in expected]
    assert [tuple(o.shape) for o in call(layer, empty)] == list(computed)


@pytest.mark.skipif(
    keras.backend.backend() == "jax", reason="JAX has no float64 by default"
)
@all_layers
def test_float64(layer, shapes):
    backend = keras.backend.backend()
    if backend == "torch" and isinstance(layer, layers.VectorRouting):
        pytest.skip("it computes in float32 alone")
    layer = type(layer).from_config(layer.get_config())
    x = batch(shapes)
    expected = call(layer, x)
    keras.config.set_floatx("float64")
    config = {**layer.get_config(), "dtype": "float64"}
    double = type(layer).from_config(config)
    x = [v.astype("float64" if v.ndim > 1 else "uint8") for v in x]
    call(double, x)
    double.set_weights(layer.get_weights())
    pairs = zip(call(double, x), expected, strict=True)
    for ours, theirs in map(to_numpy, pairs):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@all_layers
def test_other_shapes_are_refused(layer, shapes):
    if isinstance(layer, layers.Length):
        pytest.skip("Length takes any shape")
    x, *others = batch(shapes)
    fresh = type(layer).from_config(layer.get_config())
    if len(shapes) > 1 and not is_decoder(layer):
        with pytest.raises(ValueError, match="same axes B, H, W, I"):
            call(fresh, [x, others[0][..., 1:]])
    ranks = r"ndim=|must be (a pair|\[B, H, W, I, 16\])"
    with pytest.raises(ValueError, match=ranks):
        call(fresh, [x[:, 0], *others])
    call(layer, [x, *others])
    with pytest.raises(ValueError, match="expected"):
        call(layer, [np.repeat(x, 2, axis=-1), *others])


@all_layers
def test_masked_capsules_cast_no_votes(layer, shapes):
    if isinstance(layer, layers.VectorRouting):
        pytest.skip("Zeros have credit: tested there")
    x = batch(shapes)
    mask = np.arange(2 * np.prod(shapes[0][:-1])) % 3 > 0
    mask = mask.reshape(2, *shapes[0][:-1])
    masked = ops.convert_to_tensor(np.where(mask[..., None], x[0], np.nan))
    set_keras_mask(masked, ops.convert_to_tensor(mask))
    if isinstance(layer, layers.Length):
        assert get_keras_mask(layer(masked)) is not None
    elif "mask" not in inspect.signature(layer.call).parameters:
        with pytest.raises(ValueError, match="does not support masks"):
            call(layer, [masked, *x[1:]])
    else:
        x = np.where(mask[..., None], x[0], 0)
        ours = layer(masked)
        assert get_keras_mask(ours) is None
        np.testing.assert_array_equal(*to_numpy([ours, layer(x)]))
        is_attention = isinstance(layer, layers.SelfAttentionCapsule)
        inside = layer.attention if is_attention else layer.couplings
        for found in (inside(masked), inside(x, mask=mask)):
            expected = inside(x)
            if mask.ndim == 2:  # padding has no couplings
                expected = ops.where(mask[..., None], expected, 0)
            np.testing.assert_array_equal(*to_numpy([found, expected]))
