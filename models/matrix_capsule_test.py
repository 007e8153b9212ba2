import numpy as np
import pytest

from input_data import keys
from models.table import MODELS
from testing import em_oracle, numpy_oracle
from testing.small_models import example_batch, small_model

SMALLEST = keys.ImageShape(17, 17, 1, 2)


def test_the_network_equals_numpy():
    model = small_model("matrix_capsule", SMALLEST, routing=2)
    rng = np.random.default_rng(3)
    initial = model.get_weights()
    model.set_weights([w + 0.1 * rng.normal(size=w.shape) for w in initial])
    x = example_batch(SMALLEST, 1, size=1)[0]["images"]
    found = model({"images": x})

    def weights(name):
        layer = model.network.get_layer(name)
        return [w.astype("float64") for w in layer.get_weights()]

    def route(poses, activations, beta_u, beta_a, votes):
        betas = (beta_u[None], 1000 * beta_a[None])
        out, _ = em_oracle.layer(
            poses, activations, *betas, *votes, num_routing=2
        )
        return out

    kernel, biases = weights("conv1")
    hidden = numpy_oracle.convolution(x, kernel, 2, "VALID")
    hidden = np.maximum(hidden + biases, 0)
    pose_weights, pose_biases, kernel, biases = weights("primary_capsules")
    poses = (hidden @ pose_weights + pose_biases).reshape(1, 7, 7, 2, 16)
    activations = 1 / (1 + np.exp(-(hidden @ kernel + biases)))
    for name, strides in (("conv_capsules1", 2), ("conv_capsules2", 1)):
        kernel, *betas = weights(name)
        votes = em_oracle.conv_votes(poses, kernel[None], strides, "VALID")
        out = route(poses, activations, *betas, votes)
        poses, activations = out[..., :16], out[..., 16]
    kernel, *betas = weights("class_capsules")
    votes = em_oracle.class_votes(poses, kernel[None], True)
    out = route(poses, activations, *betas, votes)
    poses, activations = out[:, 0, 0, :, :16], out[:, 0, 0, :, 16]
    np.testing.assert_allclose(found[keys.LOGITS], activations, atol=1e-4)
    np.testing.assert_allclose(found[keys.CAPSULES], poses, 1e-3, 1e-4)


@pytest.mark.parametrize(
    ("step", "margin"), [(0, 0.2), (5, 0.55), (10, 0.9), (None, 0.9)]
)
def test_the_loss_sees_the_step(step, margin):
    row = MODELS["matrix_capsule"]
    labels, logits = np.eye(2)[[0, 1]], np.array([[0.6, 0.5], [0.7, 0.3]])
    lead = np.array([0.1, -0.4])
    steps = None if step is None else np.full(2, step, "int64")
    loss = row.loss(labels, logits, steps, row.hparams(margin_steps=10))
    expected = np.maximum(0, margin - lead) ** 2
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
