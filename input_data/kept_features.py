"""Image features, computed once and kept on disk."""

import os
import tempfile

import numpy as np
import tensorflow as tf
from tqdm import tqdm

from common.errors import writing
from input_data import features as keys
from input_data.pipeline import Pipeline, Stream, step_seed

_BATCH_SIZE = 64


class KeptFeatures(Pipeline):
    """The training batches of a pipeline, with features instead of images.

    The constructor uses `seed` to make `num_views` randomly changed views of
    each image. `extract` turns views [B, H, W, C] into features, which a
    temporary file keeps. A training step draws one view for each of its images.
    """

    def __init__(self, pipeline, extract, seed, num_views):
        self.spec, self.source = pipeline.spec, pipeline.source
        count = self.spec.num_images
        starts = range(0, count, _BATCH_SIZE)

        def images_of(view, start):
            stop = min(start + _BATCH_SIZE, count)
            indices = tf.range(start, stop, dtype="int64")
            step = tf.cast(view * len(starts) + start // _BATCH_SIZE, "int64")
            x, _ = pipeline.training_batch(indices, step, seed)
            return x[keys.IMAGES].numpy()  # for every backend

        with self.user_errors(), tf.device("CPU:0"):
            one = extract(images_of(0, 0))[:1]
            self._kept = _on_disk((num_views, count, *one.shape[1:]), one.dtype)
            places = [(v, start) for v in range(num_views) for start in starts]
            for view, start in tqdm(places, "Computing features"):
                values = extract(images_of(view, start))
                self._kept[view, start : start + len(values)] = values

    def training_batch(self, indices, step, seed):
        seed, count = step_seed(seed, Stream.VIEW, step), len(self._kept)
        views = tf.random.stateless_uniform(
            indices.shape, seed, 0, count, "int64"
        )
        features = tf.numpy_function(
            lambda *place: self._kept[place], [views, indices], self._kept.dtype
        )
        features.set_shape((*indices.shape, *self._kept.shape[2:]))
        labels = self.source.take_labels(indices)
        x, y = self._batch(features, [], [labels])
        x[keys.FEATURES] = x.pop(keys.IMAGES)
        return x, y


def _on_disk(shape, dtype):
    """An array in a temporary file; UserError if the disk is full."""
    size = int(np.prod(shape)) * dtype.itemsize
    name = f"{tempfile.gettempdir()} ($TMPDIR), {size / 1e9:.1f} GB of features"
    with writing(name), tempfile.TemporaryFile() as file:
        if hasattr(os, "posix_fallocate"):  # else it may end the process
            os.posix_fallocate(file.fileno(), 0, size)
        return np.memmap(file, dtype, "w+", shape=shape)
