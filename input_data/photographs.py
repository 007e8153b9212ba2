"""The pipeline of photographs, of which networks see standardized crops."""

import copy

import tensorflow as tf

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

    def training_batch(self, indices, step, seed):
        images, labels = self.take(indices)
        return self._standardized(self._distort(images, step, seed), labels)

    def evaluation_batch(self, indices):
        images, labels = self.take(indices)
        crops = transforms.central_crop(images, self._size, self._offset)
        return self._standardized(tf.cast(crops, tf.float32), labels)

    def moved(self, offset):
        """A copy with evaluation crops shifted by `offset` (down, right)."""
        other = copy.copy(self)
        other._offset = offset
        return other

    def _standardized(self, crops, labels):
        images = tf.image.per_image_standardization(crops)
        return self._batch(images, [images], [labels])
