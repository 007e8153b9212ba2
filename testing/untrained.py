"""Untrained networks and their checkpoints, for tests."""

import pathlib

import resolve
from config import Config
from input_data.keys import ImageShape
from models.architecture import Architecture
from models.optimizer import compile_model
from testing.small_models import small_hparams
from training import checkpoint

DIGITS = ImageShape(28, 28, 1, 10)


def small(model="capsule", shape=DIGITS, num_targets=1, seed=3, **hparams):
    """A small compiled network and its `Architecture`."""
    values = small_hparams(model, **hparams)
    architecture = Architecture(model, shape, num_targets, values)
    network = architecture.build(seed=seed)
    compile_model(network)
    return network, architecture


def save(folder, network, architecture, **settings):
    """Saves a network at step 0 with settings; returns the path, a string."""
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    recorded = resolve.recorded(Config(**settings))
    described = checkpoint.Checkpoint(0, architecture, recorded)
    return str(checkpoint.save(folder, network, described))
