"""Decodes image files: PNG, JPEG, BMP, GIF and WebP, gray or color."""

import io
import pathlib

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from common.errors import UserError, reading

_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP")
# ITU-R BT.601, as in tf.image.rgb_to_grayscale.
_GRAY_WEIGHTS = np.array([[0.2989], [0.5870], [0.1140]], np.float32)


def read(path, color):
    """Reads an image file; see `decode`."""
    with reading(path):
        content = pathlib.Path(path).read_bytes()
    return decode(content, path, color)


def decode(content, name, color, invert=False):
    """Decodes an image, of an animation its first frame.

    Transparent pixels become black, with or without `invert`.

    Args:
      content: bytes.
      name: what messages call the file.
      color: bool, whether to return three channels instead of one.
      invert: bool, whether to turn dark to bright and bright to dark.

    Returns:
      uint8 array [H, W, 3] or [H, W, 1].

    Raises:
      UserError: if the file is not an image or is damaged, or has more pixels
        than Pillow allows.
    """
    with reading(name):
        try:
            image = Image.open(io.BytesIO(content), formats=_FORMATS)
        except UnidentifiedImageError:
            # Pillow's message names an object in memory.
            raise UserError(
                f"{name} is not an image file ({', '.join(_FORMATS)})"
            ) from None
        image = ImageOps.exif_transpose(image)
        is_gray = image.mode in ("1", "L", "LA", "I;16")
        if image.mode == "I;16":
            image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
        has_alpha = image.has_transparency_data
        image = image.convert(("L" if is_gray else "RGB") + "A" * has_alpha)
        pixels = np.asarray(image, np.float32)
    pixels = pixels.reshape(*pixels.shape[:2], -1)
    values = pixels[..., :-1] if has_alpha else pixels
    if invert:
        values = 255 - values
    if has_alpha:
        values = values * (pixels[..., -1:] / 255)
    if color:
        values = np.broadcast_to(values, (*values.shape[:2], 3))
    elif not is_gray:
        values = values @ _GRAY_WEIGHTS
    return np.rint(values).astype(np.uint8)
