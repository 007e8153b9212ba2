import numpy as np
import pytest
from keras import ops

from input_data import features as keys
from models.optimizer import compile_model
from models.registry import build_model
from testing import em_oracle, numpy_oracle
from testing.small_models import small_hparams

SMALLEST = keys.ImageShape(17, 17, 1, 2)


def small_model(**values):
    return build_model(
        "matrix_capsule", SMALLEST, 1, small_hparams("matrix_capsule", **values)
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

    def route(poses, activations, beta_u, beta_a, votes):
        betas = (beta_u[None], 1000 * beta_a[None])
        out, _ = em_oracle.layer(
            poses, activations, *betas, *votes, num_routing=2
        )
        return out

    kernel, biases = weights(model.conv1)
    hidden = numpy_oracle.convolution(x, kernel, 2, "VALID")
    hidden = np.maximum(hidden + biases, 0)
    pose_weights, pose_biases, kernel, biases = weights(model.primary)
    poses = (hidden @ pose_weights + pose_biases).reshape(1, 7, 7, 2, 16)
    activations = 1 / (1 + np.exp(-(hidden @ kernel + biases)))
    for layer, strides in zip(model.routed, (2, 1), strict=True):
        kernel, *betas = weights(layer)
        votes = em_oracle.conv_votes(poses, kernel[None], strides, "VALID")
        out = route(poses, activations, *betas, votes)
        poses, activations = out[..., :16], out[..., 16]
    kernel, *betas = weights(model.classes)
    votes = em_oracle.class_votes(poses, kernel[None], True)
    out = route(poses, activations, *betas, votes)
    np.testing.assert_allclose(
        found[keys.LOGITS], out[:, 0, 0, :, 16], atol=1e-4
    )
    np.testing.assert_allclose(
        found[keys.CAPSULES], out[:, 0, 0, :, :16], rtol=1e-3, atol=1e-4
    )


@pytest.mark.slow
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
