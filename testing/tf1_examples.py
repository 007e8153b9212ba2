"""TF1 checkpoints as the reference writes them: for tests only.

Names and shapes are written out here from the reference's, and TF1's own
Saver writes the files.
"""

import dataclasses

import numpy as np
import tensorflow as tf

from input_data.features import ImageShape
from models.registry import model_class
from training.checkpoint import Architecture

v1 = tf.compat.v1


SIZES = {
    "capsule": {"conv_channels": 16, "num_prime_capsules": 2},
    "baseline": {"first_channels": 8, "second_channels": 6, "dense_units": 12},
}


def small(
    model="capsule", height=20, width=22, depth=1, num_targets=1, **hparams
):
    """A small network, by default on images that are not square."""
    hparams = model_class(model).HParams(**{**SIZES[model], **hparams})
    shape = ImageShape(height, width, depth, 3)
    return Architecture(model, shape, num_targets, hparams)


# The reference's variables, by hand: the positions of the primary capsules
# (of the last pool) that an image of the tests leaves.
POSITIONS = {
    ("capsule", "VALID", 20, 22): (2, 3),
    ("capsule", "SAME", 11, 13): (6, 7),
    ("baseline", "VALID", 20, 22): (2, 3),
    ("baseline", "SAME", 11, 13): (3, 4),
}


def shapes_of(architecture):
    """Dict from the reference's name to shape, the weights alone."""
    height, width, depth, classes = dataclasses.astuple(architecture.shape)
    hparams = architecture.hparams
    rows, columns = POSITIONS[
        architecture.model, hparams.padding, height, width
    ]
    if architecture.model == "baseline":
        first, second = hparams.first_channels, hparams.second_channels
        units = hparams.dense_units
        return {
            "conv1/weights": (5, 5, depth, first),
            "conv1/biases": (first,),
            "conv2/weights": (5, 5, first, second),
            "conv2/biases": (second,),
            "fc1/weights": (second * rows * columns, units),
            "fc1/biases": (units,),
            "softmax_layer/weights": (units, classes),
            "softmax_layer/biases": (classes,),
        }
    types, channels = hparams.num_prime_capsules, hparams.conv_channels
    shapes = {
        "conv1/weights": (9, 9, depth, channels),
        "conv1/biases": (channels,),
        "conv_capsule1/weights": (9, 9, channels, types * 8),
        "conv_capsule1/biases": (types, 8, 1, 1),
        "capsule2/weights": (types * rows * columns, 8, classes * 16),
        "capsule2/biases": (classes, 16),
    }
    if hparams.remake:
        pixels = height * width * depth
        shapes |= {
            "recons/recons_1/weights": (classes * 16, 512),
            "recons/recons_1/biases": (512,),
            "recons/recons_2/weights": (512, 1024),
            "recons/recons_2/biases": (1024,),
            "recons/recons_3/weights": (1024, pixels),
            "recons/recons_3/biases": (pixels,),
        }
    return shapes


def random_variables(architecture, slots=True, step=7):
    """Everything in a TF1 checkpoint, all of it different numbers."""
    random = np.random.default_rng(0)
    values = {}
    for name, shape in shapes_of(architecture).items():
        # Large enough that capsules are neither all 0 nor all 1 long.
        scale = 0.3 if name == "capsule2/weights" else 0.05
        if name.endswith("biases"):
            scale = 0.2
        values[name] = scale * random.standard_normal(shape, "float32")
        if slots:
            values[name + "/Adam"] = 1e-3 * random.standard_normal(
                shape, "float32"
            )
            values[name + "/Adam_1"] = 1e-3 * random.random(shape, "float32")
    if slots:
        values["beta1_power"] = 0.9 ** (step + 1)
        values["beta2_power"] = 0.999 ** (step + 1)
    values["global_step"] = float(step)
    return {name: np.float32(value) for name, value in values.items()}


def write(prefix, values):
    """Saves a dict from name to array by TF1's Saver; returns the prefix."""
    with tf.Graph().as_default(), v1.Session() as session:
        variables = [
            v1.get_variable(name, initializer=value)
            for name, value in values.items()
        ]
        session.run(v1.global_variables_initializer())
        saver = v1.train.Saver(variables)
        saver.save(session, str(prefix), write_meta_graph=False)
    return str(prefix)
