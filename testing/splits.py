"""Splits of data sets and their batches, for tests."""

import numpy as np

import resolve
from config import Config
from input_data import registry
from input_data.images import LabeledImages


def resolved(dataset="digits", data_dir=None, **settings):
    """A `Config` with the defaults of a data set."""
    settings["data_dir"] = data_dir and str(data_dir)
    return resolve.with_defaults(Config(dataset=dataset, **settings))


def load(name, split, data_dir=None, **settings):
    """The `Pipeline` of a `Split` of the data set `name`."""
    config = resolved(name, data_dir, validate=split.is_held_out, **settings)
    return registry.load(config, split.is_training)


def batches(pipeline, batch_size, start, stop, seed=0):
    """The training batches of some steps, as arrays."""
    dataset = pipeline.training_batches(batch_size, seed, start, stop)
    return list(dataset.as_numpy_iterator())


def single_pixels(size=9, copies=30):
    """Images that are black but for the middle pixel, which tells the class."""
    labels = np.repeat(np.arange(10), copies)
    images = np.zeros((len(labels), size, size, 1), "uint8")
    images[:, size // 2, size // 2, 0] = 25 * (labels + 1)
    return LabeledImages(images, labels, 10)
