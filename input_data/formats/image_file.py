"""Decodes image files: PNG, JPEG, BMP, GIF and WebP, grey or coloured."""

import numpy as np
import tensorflow as tf

from common.errors import UserError

# ITU-R BT.601, as in tf.image.rgb_to_grayscale.
_GREY_WEIGHTS = np.array([0.2989, 0.5870, 0.1140], np.float32)


def decode(content, name, color, invert=False):
    """Decodes an image; of an animation, its first frame.

    What is transparent becomes black, inverted or not.

    Args:
      content: bytes, a PNG, JPEG, BMP, GIF or WebP file.
      name: what to call the file in a message.
      color: bool, whether to give three channels, else one.
      invert: bool, whether to turn dark to bright and bright to dark.

    Returns:
      uint8 array [H, W, 3] or [H, W, 1].

    Raises:
      UserError: naming the file, if it is not a sound image.
    """
    with tf.device("CPU:0"):
        try:
            image = tf.io.decode_image(content, expand_animations=False)
        except tf.errors.InvalidArgumentError as error:
            raise UserError(
                f"{name} is not a sound PNG, JPEG, BMP, GIF or WebP image: "
                f"{_reason(error)}"
            ) from None
    return _convert_channels(image.numpy(), color, invert)


def _reason(error):
    """What TensorFlow says, without its functions and its list of formats."""
    reason = error.message.split("}} ")[-1].split(" [Op:")[0]
    return reason.split(" One of ")[0]


def _convert_channels(image, color, invert):
    """Grey or coloured, with or without opacity -> 1 or 3 channels."""
    pixels = image.astype(np.float32)
    opacity = None
    if image.shape[-1] in (2, 4):
        pixels, opacity = pixels[..., :-1], pixels[..., -1:] / 255.0
    if invert:
        pixels = 255.0 - pixels
    if opacity is not None:
        pixels = pixels * opacity
    if color and pixels.shape[-1] == 1:
        pixels = np.repeat(pixels, 3, axis=-1)
    if not color and pixels.shape[-1] == 3:
        pixels = pixels @ _GREY_WEIGHTS[:, np.newaxis]
    return np.rint(pixels).astype(np.uint8)
