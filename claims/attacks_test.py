import keras
import numpy as np
import pytest

import layers
from claims.attacks import DIRECTIONS, Network
from claims.measures import Examiner
from input_data import keys
from input_data.photographs import StandardizedCrops
from input_data.pipeline import Pipeline
from models.classifier import Classifier
from models.table import Model, by_loss_type
from testing import numpy_oracle, small_models

RNG = np.random.default_rng(0)
SHAPE = keys.ImageShape(3, 4, 1, 3)


def linear(images, num_classes, *, atoms: int = 1, normalize: bool = False):
    """Logits, or class capsules, that are linear in the pixels."""
    if normalize:
        images = keras.layers.BatchNormalization()(images)
    flat = keras.layers.Flatten()(images)
    logits = keras.layers.Dense(atoms * num_classes, name="dense")(flat)
    if atoms == 1:
        return {keys.LOGITS: logits}
    capsules = keras.layers.Reshape((num_classes, atoms))(logits)
    return {keys.LOGITS: layers.lengths(capsules), keys.CAPSULES: capsules}


def made(decoder=None, **hparams):
    """A model, and its dense layer with random weights."""
    row = Model(linear, by_loss_type, ("margin",), decoder=decoder)
    model = Classifier(row, SHAPE, 1, row.hparams(**hparams))
    dense = model.network.get_layer("dense")
    dense.set_weights([RNG.normal(size=w.shape) for w in dense.weights])
    return model, dense


def with_decoder():
    return made(layers.Reconstruction, atoms=2)


def data(count=7):
    images = RNG.uniform(0.2, 0.8, (count, 3, 4, 1)).astype("float32")
    return images, np.eye(3, dtype="float32")[np.arange(count) % 3]


def objective_in_numpy(model, dense, direction, label, is_standardized):
    """The function of [P, 3, 4, 1] that a step increases, in float64."""
    kernel, bias = (w.astype("float64") for w in dense.get_weights())
    decoder = model.decoder.get_weights()

    def objective(images):
        flat = images.reshape(len(images), -1)
        if is_standardized:
            flat = 255 * (flat - flat.mean(axis=-1, keepdims=True))
            deviation = flat.std(axis=-1, keepdims=True)
            flat = flat / np.maximum(deviation, 1 / np.sqrt(12))
        capsules = (flat @ kernel + bias).reshape(len(images), 3, -1)
        logits = np.sqrt((capsules**2).sum(axis=-1))
        labels = np.broadcast_to(label, logits.shape)
        if direction == "own_loss":
            return numpy_oracle.classification_loss("margin", labels, logits)
        if direction == "closer":
            longest = logits.argmax(axis=-1)
            decoded = numpy_oracle.decoder(capsules, longest, decoder)
            return -((flat - decoded) ** 2).sum(axis=-1)
        others = np.where(labels == 1, -np.inf, logits).max(axis=-1)
        return others - (labels * logits).sum(axis=-1)

    return objective


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("pipeline", [Pipeline, StandardizedCrops])
def test_gradients(direction, pipeline):
    model, dense = with_decoder()
    images, labels = data()
    images[3] = 0.4  # whose deviation is 0
    network = Network(model, 3, pipeline.preprocess)
    ours = network.gradients(images, labels, direction)
    for image, label, gradient in zip(images, labels, ours, strict=True):
        how = direction, label, pipeline is StandardizedCrops
        objective = objective_in_numpy(model, dense, *how)
        # A long step would change the standardized constant image much.
        inputs = objective, [image.astype("float64")], 1, 1e-7
        (expected,) = numpy_oracle.numerical_gradients(*inputs)
        atol = 1e-5 * max(1, abs(expected).max())
        np.testing.assert_allclose(gradient, expected, rtol=1e-3, atol=atol)
    attacked = network.attack(images, labels, 0.3, 2, (direction,))
    assert 0 <= attacked.min() < attacked.max() <= 1
    assert abs(attacked - images).max() < 0.301  # pixels


def test_gradients_pass_a_frozen_backbone(shallow, monkeypatch):
    # The preprocessing of ResNet scales pixels to [-1, 1].
    module = keras.applications.resnet_v2.__name__
    monkeypatch.setattr(small_models.shallow_backbone, "__module__", module)
    model = small_models.small_model("photo_capsule", train_backbone=False)
    images = RNG.uniform(0.2, 0.8, (3, 32, 36, 3)).astype("float32")
    labels, network = np.eye(3, dtype="float32"), Network(model, 3)
    gradients = network.gradients(images, labels)
    slopes = abs(gradients).sum(axis=(1, 2, 3))
    assert (slopes > 1e-3).all()
    move = np.float32(1e-3) * np.sign(gradients)
    logits = (network.predict(images + s * move)[0] for s in (1, -1))
    above, below = (np.max(x - 9 * labels, 1) - np.diag(x) for x in logits)
    np.testing.assert_allclose((above - below) / 2e-3, slopes, rtol=0.02)


def test_gradients_leave_batch_statistics_alone():
    model, _ = made(normalize=True)
    weights, (images, labels) = model.get_weights(), data()
    networks = Network(model, 3), Network(model, 7)
    both = (network.gradients(images, labels) for network in networks)
    np.testing.assert_allclose(*both, rtol=1e-4)
    for now, before in zip(model.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(now, before)


@pytest.mark.parametrize(("eps", "steps"), [(0.2, 1), (0.1, 3), (0.2, 40)])
def test_the_best_attack_on_linear_logits(eps, steps):
    model, dense = made()
    network = Network(model, 4)
    kernel, _ = dense.get_weights()
    dense.set_weights([kernel, np.array([0, 0, -100.0])])
    images, _ = data(6)
    labels = np.eye(3, dtype="float32")[[0, 1] * 3]  # each other's rivals
    # The largest change of a sum within eps: each pixel by the weight's sign.
    best = eps * np.sign(kernel[:, 1] - kernel[:, 0]).reshape(3, 4, 1)
    signs = np.array([1, -1] * 3).reshape(6, 1, 1, 1)
    attacked = network.attack(images, labels, eps, steps)
    np.testing.assert_allclose(attacked, images + signs * best, atol=1e-6)


def test_attack_on_the_detector_alternates():
    network = Network(with_decoder()[0], 3)
    images, labels = data()
    images[:4] = np.round(images[:4])  # attacks stay within 0 and 1
    one = network.attack(images, labels, 0.1, 1, ["logits"])
    both = ("logits", "closer")
    ours = network.attack(images, labels, 0.1, 2, both)
    x = images
    for direction in both:
        sign = np.sign(network.gradients(x, labels, direction))
        x = np.clip(x + 0.125 * sign, images - 0.1, images + 0.1)
        x = np.clip(x, 0, 1).astype("float32")
    np.testing.assert_allclose(ours, x, atol=1e-6)
    assert (one != ours).any()


def test_by_own_loss_shows_a_gradient_that_vanishes():
    model, dense = made()
    kernel = np.zeros((12, 3), "float32")
    kernel[0] = 2, -2, -2  # of the first pixel, 0.5 in all images
    dense.set_weights([kernel, np.array([0, 1, 1], "float32")])
    images, labels = data()
    labels[:] = 1, 0, 0
    images[:, 0, 0] = 0.5  # logits 1, 0, 0: the margins are met
    network = Network(model, 5)
    assert not network.gradients(images, labels, "own_loss").any()
    examiner = Examiner(network, images, labels, 4, 0)
    for test in ("fgsm", "pgd"):
        counts = examiner.run(test, 0.3)
        assert (counts["wrong"], counts["by_own_loss"]) == (7, 0)
        assert counts["wrong_examples"] == list(range(7))
    assert "decoder" in examiner.reason_to_skip("detect")
    assert "routing" in examiner.reason_to_skip("iterations")


def test_a_network_of_nan_is_wrong_and_detects_every_image():
    model, _ = with_decoder()
    images, _ = data(8)
    labels = np.eye(3, dtype="float32")[[0] * 8]  # argmax of NaN
    model.set_weights([w * np.nan for w in model.get_weights()])
    examiner = Examiner(Network(model, 4), images, labels, 1, 0)
    noisy, detect = examiner.run("noise", 0), examiner.run("detect", 0.1)
    assert noisy["wrong"] == len(noisy["wrong_unchanged"]) == 8
    assert (detect["success"], detect["undetected"]) == (0, 0)
    assert (detect["false_alarms"], detect["threshold"]) == (4, None)
