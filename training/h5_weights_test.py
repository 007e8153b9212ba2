import os
import pathlib

import h5py
import numpy as np
import pytest

from common.errors import UserError
from config import Config
from testing import numpy_oracle
from training.evaluate import Evaluator
from training.formats import open_checkpoint

DATA = pathlib.Path(os.environ.get("DATA_DIR", "none"))
PUBLISHED = DATA / "published_weights"
needs_published = pytest.mark.skipif(
    not PUBLISHED.exists(), reason=f"there is no {PUBLISHED}"
)
RNG = np.random.default_rng(3)


def random_array(*shape):
    return RNG.normal(0, 0.3, shape).astype("float32")


def write(path, arrays):
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file[f"{name}:0"] = array


def load(path):
    opened = open_checkpoint(path)
    model = opened.architecture.build()
    opened.load(model, opened.architecture)
    return opened.architecture, model


def dense_arrays(group, *units):
    arrays = {}
    for number, suffix in enumerate(("", "_1", "_2")):
        prefix, size = f"{group}/dense{suffix}", units[number + 1]
        arrays[f"{prefix}/kernel"] = random_array(units[number], size)
        arrays[f"{prefix}/bias"] = random_array(size)
    return arrays


def test_network_of_capsnet_keras(tmp_path):
    types, atoms, class_atoms = 2, 4, 3
    capsules, primary = 6 * 6 * types, "primarycap_conv2d/primarycap_conv2d"
    arrays = {
        "conv1/conv1/kernel": random_array(9, 9, 1, 5),
        "conv1/conv1/bias": random_array(5),
        f"{primary}/kernel": random_array(9, 9, 5, types * atoms),
        f"{primary}/bias": random_array(types * atoms),
        "digitcaps/digitcaps/W": random_array(10, capsules, class_atoms, atoms),
        **dense_arrays("decoder", 10 * class_atoms, 512, 1024, 784),
    }
    write(tmp_path / "trained_model.h5", arrays)
    images = RNG.random((2, 28, 28, 1), "float32")

    first, bias, second, second_bias = list(arrays.values())[:4]
    hidden = numpy_oracle.convolution(images, first, 1, "VALID") + bias
    hidden = np.maximum(hidden, 0)
    primary = numpy_oracle.convolution(hidden, second, 2, "VALID")
    primary = (primary + second_bias).reshape(-1, atoms)
    primary = numpy_oracle.squash(primary).reshape(2, capsules, atoms)
    kernel = arrays["digitcaps/digitcaps/W"]
    votes = np.einsum("oiAa,bia->bioA", kernel, primary)
    no_biases = np.zeros((2, 10, class_atoms))
    outputs, _ = numpy_oracle.routing_steps(votes, no_biases, 3, leaky=False)
    lengths = np.linalg.norm(outputs, axis=-1)
    dense = list(arrays.values())[5:]
    pixels = numpy_oracle.decoder(outputs, lengths.argmax(-1), dense)

    architecture, model = load(tmp_path / "trained_model.h5")
    assert architecture.hparams.num_prime_capsules == types
    found = model({"images": images})
    np.testing.assert_allclose(found["logits"], lengths, 1e-4)
    np.testing.assert_allclose(
        found["recons"].numpy().reshape(2, -1), pixels, 1e-3
    )


def test_network_of_efficient_capsnet(tmp_path):
    arrays, expected, depth = {}, {}, 1
    statistics = ("gamma", "beta", "moving_mean", "moving_variance")
    sizes = zip((5, 3, 3, 3), (4, 3, 3, 6), strict=True)

    def add(ours, theirs, **values):
        expected[ours] = list(values.values())
        named = {f"CapsNet/{theirs}/{k}": v for k, v in values.items()}
        arrays.update(named)

    # The numbers of a second network of one process.
    for number, (size, filters) in enumerate(sizes, 1):
        kernel = random_array(size, size, depth, filters)
        values = {"kernel": kernel, "bias": random_array(filters)}
        add(f"conv{number}", f"conv2d_{number + 8}", **values)
        values = {name: random_array(filters) for name in statistics}
        add(f"norm{number}", f"batch_normalization_{number + 8}", **values)
        depth = filters
    kernel, bias = random_array(9, 9, 1, 6), random_array(6)
    weights, biases = random_array(10, 3, 2, 4), random_array(10, 3, 1)
    add("primary_capsule", "conv2d_13", kernel=kernel, bias=bias)
    add("class_capsule", "digit_caps", W=weights, b=biases)
    expected["primary_capsule"] = [kernel[:, :, 0], bias]
    expected["class_capsule"] = [weights, biases[..., 0]]
    dense = dense_arrays("Generator", 10 * 4, 512, 1024, 784)
    write(tmp_path / "efficient_capsnet_MNIST.h5", {**arrays, **dense})

    architecture, model = load(tmp_path / "efficient_capsnet_MNIST.h5")
    assert architecture.model == "efficient_capsule"
    expected = {model.network.get_layer(k): v for k, v in expected.items()}
    expected[model.decoder] = list(dense.values())
    assert sum(map(len, expected.values())) == len(model.weights)
    for layer, values in expected.items():
        np.testing.assert_equal(layer.get_weights(), values)


def test_files_of_other_networks_are_refused(tmp_path):
    path = tmp_path / "other.h5"
    write(path, {"dense/dense/kernel": random_array(2, 3)})
    with pytest.raises(UserError, match=f"{path} is neither"):
        open_checkpoint(path)
    path.write_bytes(b"no HDF5")
    with pytest.raises(UserError, match=str(path)):
        open_checkpoint(path)


@needs_published
def test_published_weights_on_mnist_have_the_published_error():
    config = Config(data_dir=str(DATA / "mnist"))
    opened = open_checkpoint(PUBLISHED / "caps_net_mnist.h5")
    score = Evaluator(config).predict(opened).score
    assert (score.wrong, score.num_examples) == (99, 10_000)


@needs_published
def test_published_weights_for_smallnorb_load():
    path = PUBLISHED / "efficient_capsnet_SMALLNORB.h5"
    architecture, model = load(path)
    assert architecture.hparams.normalization == "instance"
    assert architecture.shape.height == 48
    with h5py.File(path) as file:
        kernel = file["CapsNet/digit_caps/W:0"][()]
    found = model.network.get_layer("class_capsule").kernel
    np.testing.assert_array_equal(found, kernel)
