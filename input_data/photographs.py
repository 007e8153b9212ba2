"""The pipeline of photographs, of which networks see standardized crops."""

import copy
import math

import tensorflow as tf
from keras import ops

from input_data import transforms
from input_data.pipeline import Pipeline


class StandardizedCrops(Pipeline):
    """Pipeline of crops of photographs, each crop standardized.

    A crop x of n values becomes (x - mean) / max(deviation, 1 / sqrt(n)). As in
    the reference, such crops are also the decoder's targets. Training crops are
    `distort(images, step, seed)`, float32 [B, *crop_size, C], of uint8
    [B, H, W, C]. Evaluation takes the centers of at most `eval_size` images.
    """

    def __init__(self, data, crop_size, distort, eval_size):
        super().__init__(data, crop_size, 1, min(eval_size, len(data)))
        self._offset = (0, 0)
        self._distort = distort
        self._prepare = tf.image.per_image_standardization

    def training_batch(self, indices, step, seed):
        images, labels = self.take(indices)
        return self._prepared(self._distort(images, step, seed), labels)

    def evaluation_batch(self, indices):
        images, labels = self.take(indices)
        crops = transforms.central_crop(images, self._size, self._offset)
        return self._prepared(tf.cast(crops, tf.float32), labels)

    def moved(self, offset):
        """A copy with evaluation crops shifted by `offset` (down, right)."""
        other = copy.copy(self)
        other._offset = offset
        return other

    def in_pixels(self):
        other = copy.copy(self)
        other._prepare = transforms.unit_range
        return other

    @staticmethod
    def preprocess(pixels):
        """Standardizes images on every backend, with finite gradients."""
        x = 255.0 * pixels
        x = x - x[:, :1, :1, :1]  # so that a constant image has the mean 0
        mean, variance = ops.moments(x, (1, 2, 3), keepdims=True)
        # The gradient of a square root is infinite at 0.
        variance = ops.maximum(variance, 1 / math.prod(x.shape[1:]))
        return (x - mean) / ops.sqrt(variance)

    def _prepared(self, crops, labels):
        images = self._prepare(crops)
        return self._batch(images, [images], [labels])
