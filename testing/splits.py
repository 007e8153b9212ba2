"""Loads one split of a data set, for tests."""

from config import Config
from input_data import registry


def load(name, split, data_dir=None, **settings):
    """The `Pipeline` of a `Split` of the data set `name`."""
    settings["data_dir"] = data_dir and str(data_dir)
    config = Config(dataset=name, validate=split.is_held_out, **settings)
    return registry.load(config, split.is_training)
