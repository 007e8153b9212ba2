"""Image features, computed once and kept on disk."""

import concurrent.futures
import hashlib

import keras
import numpy as np
import tensorflow as tf
from tqdm import tqdm

from input_data import features as keys
from input_data.kept_rows import KeptRows
from input_data.pipeline import Pipeline, Stream, read_in_graph, step_seed
from input_data.stored import digest

_BATCH_SIZE = 64


class KeptFeatures(Pipeline):
    """The training batches of a pipeline, with features instead of images.

    The constructor uses `seed` to make `num_views` randomly changed views of
    each image. `network`, a `keras.Model` called `name`, turns views
    [B, H, W, C] into features. A file in `folder` keeps them, for all trainings
    that need the same features. A training step draws one view for each of its
    images.
    """

    def __init__(self, pipeline, network, name, seed, num_views, folder):
        self.spec, self._source = pipeline.spec, pipeline.source
        count, shape = self.spec.num_images, self.spec.shape
        starts = range(0, count, _BATCH_SIZE)

        def images_of(view, start):
            stop = min(start + _BATCH_SIZE, count)
            with tf.device("CPU:0"):
                indices = tf.range(start, stop, dtype="int64")
                step = view * len(starts) + start // _BATCH_SIZE
                step = tf.cast(step, "int64")
                x, _ = pipeline.training_batch(indices, step, seed)
                return x[keys.IMAGES].numpy()  # for every backend

        size = shape.height, shape.width, shape.depth
        black = np.zeros((min(_BATCH_SIZE, count), *size), "float32")
        one = network.predict_on_batch(black)[0]
        depends_on = [pipeline.description(), seed, num_views, name]
        depends_on += [
            keras.config.dtype_policy().name,
            keras.backend.backend(),
        ]
        depends_on += [keras.__version__, *map(digest, network.get_weights())]
        depends_on = hashlib.sha256(repr(depends_on).encode()).hexdigest()
        rows = num_views * count, one.shape, one.dtype
        self._kept = KeptRows(folder, "features", depends_on, *rows)
        self._num_views = num_views
        missing = self._kept.missing().reshape(num_views, count)
        places = [
            (view, start)
            for view in range(num_views)
            for start in starts
            if missing[view, start : start + _BATCH_SIZE].any()
        ]
        print(f"Features: {self._kept.path}, {self._kept.size / 1e9:.2f} GB")
        if not places:
            return
        self._kept.allocate()
        # While a batch passes through the network, the next one is decoded.
        with (
            self.user_errors(),
            concurrent.futures.ThreadPoolExecutor(1) as executor,
        ):
            following = executor.submit(images_of, *places[0])
            for number, (view, start) in enumerate(
                tqdm(places, "Computing features"), 1
            ):
                images = following.result()
                if number < len(places):
                    following = executor.submit(images_of, *places[number])
                values = network.predict_on_batch(images)
                self._kept.write(view * count + start, values)

    def training_batch(self, indices, step, seed):
        seed, count = step_seed(seed, Stream.VIEW, step), self.spec.num_images
        views = tf.random.stateless_uniform(
            indices.shape, seed, 0, self._num_views, "int64"
        )
        rows = views * count + indices
        kept = self._kept.read, rows, self._kept.dtype, self._kept.shape
        features = read_in_graph(self._source, *kept)
        x, y = self._batch(features, [], [self._source.take_labels(indices)])
        x[keys.FEATURES] = x.pop(keys.IMAGES)
        return x, y
