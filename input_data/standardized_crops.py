"""Pipeline of photographs: square crops, each with mean 0 and deviation 1."""

import copy

import tensorflow as tf

from input_data.labelled_images import ImageTensors
from input_data.pipeline import Pipeline
from input_data.randomness import Stream, step_seed
from input_data.transforms.photo_distortion import (
    central_crop,
    random_brightness,
    random_contrast,
)

# The reference's distortions, for pixels of 0 to 255.
MAX_BRIGHTNESS_DELTA = 63.0
CONTRAST_RANGE = (0.2, 1.8)


class StandardizedCrops(Pipeline):
    """Crops of photographs, standardised one by one.

    In training the crop and its distortions are `distort`'s; in evaluation it
    is the middle. Then each crop becomes (x - mean) / max(deviation,
    1 / sqrt(number of values)), over all its pixels and channels.

    The target of the decoder is the image that the network sees, as in the
    reference. Its values lie on both sides of 0 and beyond 1, while the
    decoder's last layer is a sigmoid: it can only redraw the part in [0, 1].

    Args:
      data: `LabelledImages`.
      crop_size: pair of int, height and width of the crops.
      distort: function of images uint8 [B, H, W, C], the step and the user's
        seed that returns float32 [B, *crop_size, C].
      eval_size: int, how many examples to evaluate, at most.
    """

    def __init__(self, data, crop_size, distort, eval_size):
        num_examples = min(eval_size, len(data))
        super().__init__(ImageTensors(data), crop_size, 1, num_examples)
        self._crop_size = crop_size
        self._offset = (0, 0)
        self._distort = distort

    def _training_batch(self, step, batch_size, seed):
        images, labels = self._source.take(
            self.training_indices(step, batch_size, seed)
        )
        return self._standardised(self._distort(images, step, seed), labels)

    def _evaluation_batch(self, indices):
        images, labels = self._source.take(indices)
        crops = central_crop(images, self._crop_size, self._offset)
        return self._standardised(tf.cast(crops, tf.float32), labels)

    def moved(self, offset):
        """The same images, whose crops in evaluation lie beside the middle.

        Args:
          offset: pair of int, pixels down and right.
        """
        other = copy.copy(self)
        other._offset = offset
        return other

    def _standardised(self, crops, labels):
        images = tf.image.per_image_standardization(crops)
        return self._batch(images, [images], [labels])


def distort_colours(images, step, seed):
    """Random brightness, then random contrast, each image by its own draw.

    Args:
      images: float32 [B, H, W, C], pixels of 0 to 255.
      step: scalar int64 tensor.
      seed: int, the user's.
    """
    images = random_brightness(
        images, MAX_BRIGHTNESS_DELTA, step_seed(seed, Stream.BRIGHTNESS, step)
    )
    return random_contrast(
        images, *CONTRAST_RANGE, step_seed(seed, Stream.CONTRAST, step)
    )
