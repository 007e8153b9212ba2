"""Weights of other projects, against networks of plain Keras layers."""

import os
import pathlib

import h5py
import keras
import numpy as np
import pytest

from common.errors import UserError
from config import Config
from testing import numpy_oracle
from training import checkpoint
from training.evaluate import Evaluator

DATA = pathlib.Path(os.environ.get("DATA_DIR", ""))
PUBLISHED = {
    "capsule": DATA / "published_weights" / "caps_net_mnist.h5",
    "efficient_capsule": DATA
    / "published_weights"
    / "efficient_capsnet_SMALLNORB.h5",
}


def needs(*paths):
    missing = [str(path) for path in paths if not path.exists()]
    return pytest.mark.skipif(
        not os.environ.get("DATA_DIR") or bool(missing),
        reason=f"$DATA_DIR has no {', '.join(missing)}",
    )


def random_array(*shape):
    seed = sum(shape)
    return np.random.default_rng(seed).normal(0, 0.3, shape).astype("float32")


def write(path, arrays):
    """Writes arrays under their names, as Keras 2 does."""
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file[f"{name}:0"] = array


def lengths_of(path, images):
    """Lengths by our network, and the pixels that it reconstructs."""
    opened = checkpoint.open_checkpoint(path)
    model = opened.architecture.build()
    opened.load(model, opened.architecture)
    outputs = model({"images": images})
    return opened.architecture, outputs["logits"], outputs["recons"]


def decoded(capsules, arrays, group):
    longest = np.linalg.norm(capsules, axis=-1).argmax(-1)
    masked = np.zeros_like(capsules)
    rows = np.arange(len(capsules))
    masked[rows, longest] = capsules[rows, longest]
    hidden = masked.reshape(len(capsules), -1)
    for name in ("dense", "dense_1", "dense_2"):
        hidden = hidden @ arrays[f"{group}/{name}/kernel"]
        hidden = hidden + arrays[f"{group}/{name}/bias"]
        if name != "dense_2":
            hidden = np.maximum(hidden, 0)
    return 1 / (1 + np.exp(-hidden))


def dense_arrays(group, *units):
    return {
        f"{group}/dense{suffix}/{name}": array
        for suffix, size, inputs in zip(
            ("", "_1", "_2"), units[1:], units, strict=False
        )
        for name, array in {
            "kernel": random_array(inputs, size),
            "bias": random_array(size),
        }.items()
    }


def convolution(images, kernel, bias, strides=1):
    return keras.ops.convert_to_numpy(
        keras.ops.conv(images, kernel, strides, data_format="channels_last")
        + bias
    )


def test_network_of_capsnet_keras(tmp_path):
    types, atoms, class_atoms = 2, 4, 3
    capsules = 6 * 6 * types
    arrays = {
        "conv1/conv1/kernel": random_array(9, 9, 1, 5),
        "conv1/conv1/bias": random_array(5),
        "primarycap_conv2d/primarycap_conv2d/kernel": random_array(
            9, 9, 5, types * atoms
        ),
        "primarycap_conv2d/primarycap_conv2d/bias": random_array(types * atoms),
        "digitcaps/digitcaps/W": random_array(10, capsules, class_atoms, atoms),
        **dense_arrays("decoder", 10 * class_atoms, 512, 1024, 784),
    }
    write(tmp_path / "trained_model.h5", arrays)
    images = np.random.default_rng(0).random((2, 28, 28, 1), "float32")

    hidden = convolution(images, *list(arrays.values())[:2])
    primary = convolution(
        np.maximum(hidden, 0), *list(arrays.values())[2:4], strides=2
    )
    primary = numpy_oracle.squash(primary.reshape(-1, atoms))
    votes = np.einsum(
        "oiAa,bia->bioA",
        arrays["digitcaps/digitcaps/W"],
        primary.reshape(2, capsules, atoms),
    )
    no_biases = np.zeros((2, 10, class_atoms))
    outputs = numpy_oracle.routing(votes, no_biases, 3, leaky=False)

    architecture, found, pixels = lengths_of(
        tmp_path / "trained_model.h5", images
    )
    assert architecture.hparams.num_prime_capsules == types
    np.testing.assert_allclose(found, np.linalg.norm(outputs, axis=-1), 1e-4)
    np.testing.assert_allclose(
        pixels.numpy().reshape(2, -1), decoded(outputs, arrays, "decoder"), 1e-3
    )


def test_network_of_efficient_capsnet(tmp_path):
    channels = (4, 3, 3, 6)
    kernels, depth = (5, 3, 3, 3), 1
    arrays = {}
    for number, (kernel, size) in enumerate(
        zip(kernels, channels, strict=True)
    ):
        suffix = f"_{number + 9}"  # a second network of one process
        arrays |= {
            f"CapsNet/conv2d{suffix}/kernel": random_array(
                kernel, kernel, depth, size
            ),
            f"CapsNet/conv2d{suffix}/bias": random_array(size),
            **{
                f"CapsNet/batch_normalization{suffix}/{name}": random_array(
                    size
                )
                for name in ("gamma", "beta", "moving_mean")
            },
            f"CapsNet/batch_normalization{suffix}/moving_variance": np.abs(
                random_array(size)
            ),
        }
        depth = size
    arrays |= {
        "CapsNet/conv2d_13/kernel": random_array(9, 9, 1, 6),
        "CapsNet/conv2d_13/bias": random_array(6),
        "CapsNet/digit_caps/W": random_array(10, 3, 2, 4),
        "CapsNet/digit_caps/b": random_array(10, 3, 1),
        **dense_arrays("Generator", 10 * 4, 512, 1024, 784),
    }
    write(tmp_path / "efficient_capsnet_MNIST.h5", arrays)
    images = np.random.default_rng(0).random((2, 28, 28, 1), "float32")

    hidden = images
    for number, strides in zip(range(9, 13), (1, 1, 1, 2), strict=True):
        hidden = convolution(
            hidden,
            arrays[f"CapsNet/conv2d_{number}/kernel"],
            arrays[f"CapsNet/conv2d_{number}/bias"],
            strides,
        )
        gamma, beta, mean, variance = (
            arrays[f"CapsNet/batch_normalization_{number}/{name}"]
            for name in ("gamma", "beta", "moving_mean", "moving_variance")
        )
        hidden = (np.maximum(hidden, 0) - mean) / np.sqrt(variance + 1e-3)
        hidden = hidden * gamma + beta

    def copies(name):
        return np.stack([arrays[f"CapsNet/{name}"]] * 2)

    kernel, bias = (
        copies("conv2d_13/kernel")[..., 0, :],
        copies("conv2d_13/bias"),
    )
    primary = numpy_oracle.depthwise_capsule(hidden, kernel, bias, 2)
    weights, biases = copies("digit_caps/W"), copies("digit_caps/b")[..., 0]
    outputs = numpy_oracle.self_attention_capsule(primary, weights, biases)

    architecture, found, pixels = lengths_of(
        tmp_path / "efficient_capsnet_MNIST.h5", images
    )
    assert architecture.model == "efficient_capsule"
    np.testing.assert_allclose(found, np.linalg.norm(outputs, axis=-1), 1e-3)
    np.testing.assert_allclose(
        pixels.numpy().reshape(2, -1),
        decoded(outputs, arrays, "Generator"),
        1e-3,
    )


def test_files_of_other_networks_are_refused(tmp_path):
    path = tmp_path / "other.h5"
    write(path, {"dense/dense/kernel": random_array(2, 3)})
    with pytest.raises(UserError, match=f"{path} is neither"):
        checkpoint.open_checkpoint(path)
    path.write_bytes(b"no HDF5")
    with pytest.raises(UserError, match=str(path)):
        checkpoint.open_checkpoint(path)


@needs(PUBLISHED["capsule"], DATA / "mnist")
def test_published_weights_on_mnist_have_the_published_error():
    config = Config(data_dir=str(DATA / "mnist"))
    opened = checkpoint.open_checkpoint(PUBLISHED["capsule"])
    score = Evaluator(config).predict(opened).score
    assert (score.wrong, score.num_examples) == (99, 10_000)


@needs(PUBLISHED["efficient_capsule"])
def test_published_weights_for_smallnorb_load():
    opened = checkpoint.open_checkpoint(PUBLISHED["efficient_capsule"])
    architecture = opened.architecture
    model = architecture.build()
    opened.load(model, architecture)
    assert architecture.hparams.normalization == "instance"
    assert architecture.shape.height == 48
    name = "CapsNet/digit_caps/W:0"
    with h5py.File(opened.path) as file:
        kernel = model.class_capsule.kernel.numpy()
        np.testing.assert_array_equal(kernel, file[name][()])
