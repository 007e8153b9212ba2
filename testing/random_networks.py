"""Small networks of `layers.networks` with weights from NumPy, for tests.

`python -m testing.random_networks` writes their present outputs to OUTPUTS.
"""

import inspect
import json
import pathlib
import typing
from unittest import mock

import keras
import numpy as np

import layers
from models.table import MODELS
from testing.small_models import shallow_backbone, small_hparams, small_shape

OUTPUTS = pathlib.Path(__file__).with_name("network_outputs.json")
# Tests of `photo_capsule` need files or other backbones for these.
_OF_BACKBONES = {"backbone", "backbone_weights"}


# More would not fit into the images or the network.
_LARGE = {"branches", "kernel_size"}


def options(name):
    """The arguments of a small network on which others have an effect."""
    found = small_hparams(name).options(MODELS[name].network)
    found.pop("backbone_weights", None)
    if "num_routing" in found:
        found["num_routing"] = 3
    if name == "matrix_capsule":
        found["padding"] = "SAME"  # class capsules see several positions
    return found


def other_values(name):
    """Yields (argument, value): every choice, or one other number."""
    found = inspect.signature(getattr(layers.networks, name)).parameters
    for argument in list(found)[2:]:
        value = options(name).get(argument, found[argument].default)
        others = typing.get_args(found[argument].annotation)
        if isinstance(value, bool):
            others = [not value]
        elif isinstance(value, int):
            others = [value + (1 if argument not in _LARGE else -1)]
        elif isinstance(value, float):
            others = [0.5 * value + 0.05]
        elif argument == "rule":
            others = [layers.RoutingRule(squash_constant=0.5)]
        if argument not in _OF_BACKBONES:
            yield from ((argument, other) for other in others if other != value)


def size(name):
    """(H, W, C) of the images of `small_shape`."""
    shape = small_shape(name)
    return shape.height, shape.width, shape.depth


def build(network, images=None, /, **more):
    """A network from images or a shape; `more` are further arguments."""
    function = getattr(layers.networks, network)
    images = size(network) if images is None else images
    with mock.patch("keras.applications.MobileNetV3Small", shallow_backbone):
        return function(images, 3, **options(network) | more)


def random_images(name):
    """A batch of three."""
    return np.random.default_rng(1).random((3, *size(name)), "float32")


def randomize(network):
    """Gives weights that keep outputs from 0 and 1; variances are positive."""
    rng = np.random.default_rng(0)
    for weight in network.weights:
        if weight.name in ("gamma", "moving_variance"):
            values = rng.uniform(0.5, 1.5, weight.shape)
        elif len(weight.shape) > 1:
            scale = 2 / np.sqrt(np.prod(weight.shape[:-1]))
            values = scale * rng.normal(size=weight.shape)
        else:
            values = 0.3 * rng.normal(size=weight.shape)
        weight.assign(values)


def random_outputs(name, **more):
    """Outputs with random weights, before and after moving statistics."""
    network, images = build(name, **more), random_images(name)
    randomize(network)
    before = network(images)
    network(images, training=True)
    after = network(images)
    return np.stack([*map(keras.ops.convert_to_numpy, (before, after))])


if __name__ == "__main__":
    rows = []
    for name in sorted(MODELS):
        pair = {}, dict(other_values(name))
        outputs = [random_outputs(name, **more).tolist() for more in pair]
        rounded = json.dumps(
            keras.tree.map_structure(lambda x: round(x, 5), outputs)
        )
        rows.append(f'"{name}": {rounded}')
    OUTPUTS.write_text("{\n" + ",\n".join(rows) + "\n}\n")
