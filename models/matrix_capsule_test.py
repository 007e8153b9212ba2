import keras
import numpy as np
import pytest
from keras import ops

from common.errors import UserError
from input_data import features as keys
from models.matrix_capsule import HParams
from models.optimizer import compile_model
from models.registry import build_model
from testing import em_oracle
from testing.small_models import small_hparams
from training.devices import OneDevice

SMALLEST = keys.ImageShape(17, 17, 1, 2)


def small_model(**values):
    return build_model(
        "matrix_capsule",
        SMALLEST,
        1,
        small_hparams("matrix_capsule", **values),
    )


def images(count):
    size = (count, SMALLEST.height, SMALLEST.width, SMALLEST.depth)
    return np.random.default_rng(3).uniform(size=size).astype("float32")


def test_the_network_equals_numpy():
    model = small_model(routing=2)
    x = images(1)
    found = {
        k: ops.convert_to_numpy(v) for k, v in model({"images": x}).items()
    }

    def weights(layer):
        return [
            ops.convert_to_numpy(w).astype("float64") for w in layer.weights
        ]

    kernel, biases = weights(model.conv1)
    windows = np.lib.stride_tricks.sliding_window_view(x, (5, 5), axis=(1, 2))
    hidden = np.einsum("bhwcyx,yxco->bhwo", windows[:, ::2, ::2], kernel)
    hidden = np.maximum(hidden + biases, 0)
    pose_weights, pose_biases, kernel, biases = weights(model.primary)
    poses = (hidden @ pose_weights + pose_biases).reshape(1, 7, 7, 2, 16)
    activations = 1 / (1 + np.exp(-(hidden @ kernel + biases)))
    for layer, strides in zip(model.routed, (2, 1), strict=True):
        kernel, beta_u, beta_a = weights(layer)
        votes = em_oracle.conv_votes(poses, kernel[None], strides, "VALID")
        out, _ = em_oracle.layer(
            poses,
            activations,
            beta_u[None],
            1000 * beta_a[None],
            *votes,
            num_routing=2,
        )
        poses, activations = out[..., :16], out[..., 16]
    kernel, beta_u, beta_a = weights(model.classes)
    votes = em_oracle.class_votes(poses, kernel[None], True)
    out, _ = em_oracle.layer(
        poses,
        activations,
        beta_u[None],
        1000 * beta_a[None],
        *votes,
        num_routing=2,
    )
    np.testing.assert_allclose(
        found[keys.LOGITS], out[:, 0, 0, :, 16], atol=1e-4
    )
    np.testing.assert_allclose(
        found[keys.CAPSULES], out[:, 0, 0, :, :16], rtol=1e-3, atol=1e-4
    )


def test_routing_of_images():
    model = small_model(routing=3)
    routing = model.routing_of(images(3))
    assert routing.couplings.shape == (3, 3, 1, 1, 2, 2)
    assert not routing.leaky
    np.testing.assert_allclose(
        ops.convert_to_numpy(routing.couplings).sum(axis=-1), 1, rtol=1e-5
    )


def test_activations_are_tensors():
    found = small_model().activations(images(2))
    shapes = {name: tuple(tensor.shape) for name, tensor in found.items()}
    assert shapes["conv1"] == (2, 7, 7, 4)
    assert shapes["conv_capsules1/poses"] == (2, 3, 3, 2, 16)
    assert shapes["class_capsules/activations"] == (2, 2)


def test_the_loss_sees_the_step_and_the_weights_decay():
    def loss(step, **values):
        model = small_model(margin_steps=10, **values)
        compile_model(model)
        x = {keys.IMAGES: images(4)}
        if step is not None:
            x[keys.STEP] = np.full(4, step, "int64")
        y = {keys.LOGITS: np.eye(2, dtype="float32")[[0, 1, 1, 0]]}
        outputs = model(x)
        found = float(model.compute_loss(x, y, outputs))
        logits = ops.convert_to_numpy(outputs[keys.LOGITS])
        lead = logits[range(4), [0, 1, 1, 0]] - logits[range(4), [1, 0, 0, 1]]
        return model, found, lead

    for step, margin in ((0, 0.2), (5, 0.55), (10, 0.9), (None, 0.9)):
        _, found, lead = loss(step, weight_decay=0.0)
        np.testing.assert_allclose(
            found, (np.maximum(0, margin - lead) ** 2).mean(), rtol=1e-4
        )
    model, decayed, _ = loss(5, weight_decay=0.1)
    _, plain, _ = loss(5, weight_decay=0.0)
    squares = sum(
        np.square(ops.convert_to_numpy(w)).sum()
        for w in model.trainable_weights
        if len(w.shape) > 1
    )
    np.testing.assert_allclose(decayed - plain, 0.05 * squares, rtol=1e-4)


@pytest.mark.parametrize(
    "values",
    [
        {"damping": 1.0},
        {"min_variance": 0.0},
        {"normalise": "all"},
        {"class_lambda": 0.0},
        {"loss_type": "hinge"},
    ],
)
def test_values_out_of_range(values):
    with pytest.raises(UserError, match=next(iter(values))):
        HParams(**values)


@pytest.mark.slow
def test_it_learns():
    """Vertical bars from horizontal ones, wherever they are."""
    generator = np.random.default_rng(8)
    x = np.zeros((64, 17, 17, 1), "float32")
    labels = generator.integers(2, size=64)
    for image, label in zip(x, labels, strict=True):
        place = generator.integers(4, 13)
        image[(slice(None), place) if label else place] = 1.0
    # Few children for each parent: their costs need a larger lambda to count.
    model = small_model(
        routing=2,
        learning_rate=0.01,
        margin_steps=30,
        conv_lambda=1.0,
        class_lambda=1.0,
    )
    compile_model(model)
    y = {keys.LOGITS: np.eye(2, dtype="float32")[labels]}
    model.fit({keys.IMAGES: x}, y, batch_size=32, epochs=15, verbose=0)
    logits = ops.convert_to_numpy(model({keys.IMAGES: x})[keys.LOGITS])
    assert (logits.argmax(axis=1) == labels).mean() > 0.9


@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="its devices"
)
def test_mirrored_steps_are_not_compiled_by_xla():
    import tensorflow as tf

    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        model = small_model()
        compile_model(model)
    assert not model.jit_compile


def test_steps_are_compiled_by_xla():
    model = small_model()
    compile_model(model)
    assert model.jit_compile == (keras.backend.backend() != "torch")


def test_evaluation_is_compiled_by_xla():
    model = small_model()
    OneDevice().make_predict_fn(model)
    assert model.jit_compile == (keras.backend.backend() != "torch")


def test_initial_deviations_are_those_asked_for():
    shape = keys.ImageShape(32, 32, 2, 5)
    model = build_model(
        "matrix_capsule",
        shape,
        1,
        HParams(first_types=8, conv_stddev=0.2, kernel_stddev=1.0),
    )
    kernels = {
        "conv1": (model.conv1.kernel, 0.2),
        "first": (model.routed[0].kernel, 1.0),
        "classes": (model.classes.kernel, 1.0),
    }
    for name, (kernel, stddev) in kernels.items():
        found = ops.convert_to_numpy(kernel).std()
        # A normal distribution that is cut at two deviations.
        assert found == pytest.approx(0.88 * stddev, rel=0.05), name
