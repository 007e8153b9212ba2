"""Loads one split of a data set, for tests."""

import dataclasses

from config import Config
from input_data import registry


def load(name, split, config=None):
    """The `Pipeline` of a `Split` of the data set `name`."""
    config = dataclasses.replace(
        config or Config(), dataset=name, validate=split.is_held_out
    )
    return registry.load(config, split.is_training)
