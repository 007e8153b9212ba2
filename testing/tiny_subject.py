"""A small untrained network on the embedded digits: for tests only."""

import functools

import keras
import numpy as np

from config import Config
from input_data import registry
from input_data.registry import Split
from models.registry import build_model
from testing.small_models import small_hparams
from visualisation.trained_model import TrainedModel

NUM_EXAMPLES = 130


@functools.cache
def make_subject(num_targets=1, model="capsule", **hparams):
    """A `TrainedModel` with `NUM_EXAMPLES` examples, more than a batch.

    Tests share it, as its functions take long to trace: one that changes
    weights asks for hyper-parameters that no other does.
    """
    pipeline = registry.load(
        "digits",
        Split.TEST,
        Config(num_targets=num_targets, eval_size=NUM_EXAMPLES),
    )
    network = build_model(
        model,
        pipeline.spec.shape,
        num_targets,
        small_hparams(model, **hparams),
        seed=3,
    )
    return TrainedModel(network, pipeline, "digits, tiny", pipeline.spec.names)


def decoder_in_numpy(subject, capsule, label):
    """The image [H, W, C] of one class capsule [A], all others zeroed."""
    model = subject.model
    shape = subject.pipeline.spec.shape
    atoms = len(capsule)
    hidden = np.zeros(shape.num_classes * atoms)
    hidden[label * atoms : (label + 1) * atoms] = capsule
    for number, layer in enumerate(model.recons.dense):
        kernel, bias = map(keras.ops.convert_to_numpy, layer.weights)
        hidden = hidden @ kernel + bias
        if number < 2:
            hidden = np.maximum(hidden, 0)
    image = 1 / (1 + np.exp(-hidden))
    return image.reshape(shape.height, shape.width, shape.depth)
