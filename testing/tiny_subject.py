"""A small untrained network on the embedded digits: for tests only."""

import functools

import numpy as np

from config import Config
from input_data import registry
from input_data.registry import Split
from models.registry import build_model
from testing import numpy_oracle
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
    shape = subject.pipeline.spec.shape
    capsules = np.tile(capsule, (1, shape.num_classes, 1))
    weights = subject.model.recons.get_weights()
    image = numpy_oracle.decoder(capsules, [label], weights)
    return image.reshape(shape.height, shape.width, shape.depth)
