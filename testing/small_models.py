"""Sizes of each model for training steps that take milliseconds."""

import keras
import numpy as np
from keras.applications import mobilenet_v3

from input_data import keys
from input_data.keys import ImageShape
from models.architecture import Architecture
from models.table import find_model

SMALL = ImageShape(18, 20, 2, 3)  # not square
_CHANNELS = {"first_channels": 4, "second_channels": 6}
_POSES = {"conv_channels": 4, "primary_types": 2}
_POSES |= {"first_types": 2, "second_types": 2}
SIZES = {
    "baseline": {"first_channels": 4, "second_channels": 3, "dense_units": 8},
    "capsule": {"conv_channels": 3, "num_prime_capsules": 2}
    | {"primary_atoms": 4, "class_atoms": 5},
    "pooling": {**_CHANNELS, "dense_units": 8},
    "shared_capsule": {**_CHANNELS, "class_atoms": 5},
    "deepcaps": {"types": 2, "class_atoms": 4},
    "efficient_capsule": {"first_channels": 4, "middle_channels": 3}
    | {"num_prime_capsules": 3, "primary_atoms": 2, "class_atoms": 4},
    "homogeneous_capsule": {"branches": 2, "convolutions": 4}
    | {"first_channels": 3, "more_channels": 1},
    "inverted_attention": _POSES,
    # With more iterations TensorFlow takes many seconds for tracing.
    "matrix_capsule": {**_POSES, "routing": 1},
    "vb_capsule": {**_POSES, "routing": 1},
    "photo_capsule": {"backbone_weights": "none", "train_backbone": True}
    | {"types": 2, "class_atoms": 4},
    "self_routing": {"channels": 2, "types": 3, "atoms": 4, "depth": 2},
}


def shallow_backbone(input_shape, include_top=False, weights=None):
    """In place of keras.applications.MobileNetV3Small: quick to trace."""
    images = keras.Input(input_shape)
    features = keras.layers.Conv2D(6, 3, 32, padding="same")(images)
    features = keras.layers.BatchNormalization()(features)
    return keras.Model(images, keras.layers.ReLU()(features))


shallow_backbone.__module__ = mobilenet_v3.__name__  # has preprocess_input


def small_shape(name):
    """The `ImageShape` of small images for a model."""
    return ImageShape(32, 36, 3, 3) if name == "photo_capsule" else SMALL


def small_hparams(name, **values):
    """The hyper-parameters of a small network; `values` replace some."""
    return find_model(name).hparams(**SIZES.get(name, {}) | values)


def build_model(name, shape, num_targets, hparams, seed=0, **options):
    """The network that `Architecture.build` makes."""
    arguments = name, shape, num_targets, hparams
    return Architecture(*arguments).build(seed, **options)


def small_model(name, shape=None, num_targets=1, seed=0, **values):
    """A small network of a model, by default for images of `small_shape`."""
    hparams = small_hparams(name, **values)
    shape = shape or small_shape(name)
    return build_model(name, shape, num_targets, hparams, seed)


def overrides(name, **values):
    """`small_hparams` as a string for --hparams_override."""
    pairs = {**SIZES[name], **values}.items()
    return ",".join(f"{key}={str(value).lower()}" for key, value in pairs)


def example_batch(shape, num_targets, size=4):
    """Random images, with labels and targets: the arguments of a step."""
    generator = np.random.default_rng(5)
    labels = np.arange(size * num_targets) % shape.num_classes
    labels = labels.reshape(size, num_targets).astype("int32")
    one_hot = np.eye(shape.num_classes, dtype="float32")[labels]
    dimensions = (size, shape.height, shape.width, shape.depth)
    x = {keys.IMAGES: generator.uniform(size=dimensions).astype("float32")}
    y = {keys.LABELS: one_hot.sum(axis=1)}
    for target in range(num_targets):
        x[keys.LABEL_BY_TARGET[target]] = labels[:, target]
        pixels = generator.uniform(size=dimensions).astype("float32")
        y[keys.RECONS_BY_TARGET[target]] = pixels
    return x, y
