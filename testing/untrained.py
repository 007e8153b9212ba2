"""Networks that were not trained, their checkpoints: for tests, benchmarks."""

import checkpoints
from checkpoints.architecture import Architecture
from input_data.features import ImageShape
from models.optimizer import compile_model
from testing.small_models import small_hparams
from training.config import Config

DIGITS = ImageShape(28, 28, 1, 10)


def compiled(architecture, seed=0):
    """The network of an `Architecture`, with its optimiser."""
    network = architecture.build(seed)
    compile_model(network)
    return network


def small(model="capsule", shape=DIGITS, num_targets=1, seed=3, **hparams):
    """A small network with its optimiser, and its `Architecture`."""
    architecture = Architecture(
        model, shape, num_targets, small_hparams(model, **hparams)
    )
    return compiled(architecture, seed), architecture


def save(folder, network, architecture, **settings):
    """Saves it at step 0, with what `Config(**settings)` records.

    Returns:
      The path of the checkpoint, a string.
    """
    training = Config(**settings).recorded()
    metadata = checkpoints.Metadata(0, architecture, training)
    return str(checkpoints.save(folder, network, metadata))
