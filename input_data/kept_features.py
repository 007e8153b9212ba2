"""Image features, computed once and kept on disk."""

import hashlib
import pathlib
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import tensorflow as tf
from tqdm import tqdm

from input_data import keys
from input_data.pipeline import Pipeline, Stream, step_seed, taken
from input_data.stored import digest, kept_rows

_BATCH_SIZE = 64


class KeptFeatures(Pipeline):
    """The training batches of a pipeline, with features instead of images.

    `seed` fixes `num_views` randomly changed views of each image. `network`, a
    `keras.Model` called `name`, turns views [B, H, W, C] into features, which a
    file in `folder` keeps. A training step draws one view of each image.
    """

    def __init__(self, pipeline, network, name, seed, num_views, folder):
        self.spec, self._pipeline = pipeline.spec, pipeline
        self._num_views = num_views
        count, shape = self.spec.num_images, self.spec.shape
        size = shape.height, shape.width, shape.depth
        black = np.zeros((min(_BATCH_SIZE, count), *size), "float32")
        one = network.predict_on_batch(black)[0]
        depends_on = [pipeline.description(), seed, num_views, name]
        depends_on += [keras.config.dtype_policy().name]
        depends_on += [keras.backend.backend(), keras.__version__]
        depends_on += map(digest, network.get_weights())
        depends_on = hashlib.sha256(repr(depends_on).encode()).hexdigest()
        path = pathlib.Path(folder, f"features-{depends_on[:32]}")
        rows = num_views * count
        print(f"Features: {path}, {rows * one.nbytes / 1e9:.2f} GB")
        starts = range(0, count, _BATCH_SIZE)

        def images_of(step):
            start = starts[step % len(starts)]
            stop = min(start + _BATCH_SIZE, count)
            with tf.device("CPU:0"):
                indices = tf.range(start, stop, dtype="int64")
                step = tf.constant(step, "int64")
                x, _ = pipeline.training_batch(indices, step, seed)
                return x[keys.IMAGES].numpy()  # for every backend

        def features():
            """Yields batches; a step computes one view of some images."""
            steps = range(num_views * len(starts))
            with ThreadPoolExecutor(1) as executor:
                batches = (executor.submit(images_of, step) for step in steps)
                following = next(batches)
                for _ in tqdm(steps, "Computing features"):
                    # The next batch is decoded while the network uses this one.
                    with self.user_errors():
                        images = following.result()
                    following = next(batches, None)
                    yield network.predict_on_batch(images)

        shape = rows, *one.shape
        self._kept = kept_rows(path, shape, one.dtype, features())

    def training_batch(self, indices, step, seed):
        seed, count = step_seed(seed, Stream.VIEW, step), self.spec.num_images
        views = tf.random.stateless_uniform(
            indices.shape, seed, 0, self._num_views, "int64"
        )
        kept = self._kept
        features = taken(kept, views * count + indices, kept.dtype)
        labels = self._pipeline.take_labels(indices)
        x, y = self._batch(features, [], [labels])
        x[keys.FEATURES] = x.pop(keys.IMAGES)
        return x, y
