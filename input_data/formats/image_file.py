"""Decodes image files: PNG, JPEG, BMP, GIF and WebP, grey or coloured."""

import contextlib
import io
import math
import threading

import numpy as np
from PIL import Image

from input_data import memory
from input_data.formats.files import opened, read_bytes
from old.errors import UserError

FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP")
# Those of other files are not looked at in a folder of images.
SUFFIXES = (".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".bmp", ".gif", ".webp")
# 16,384 x 8,192, which no usual camera gives. A few bytes can announce any
# number, so that the header is read before anything is unpacked.
MAX_PIXELS = 2**27
# No format takes more bytes for those than PNG: four channels of two each.
_BYTES_PER_PIXEL = 8
MAX_BYTES = _BYTES_PER_PIXEL * MAX_PIXELS
# Further frames, colour profiles, previews.
_OTHER_BYTES = 2**26
# Above as many pixels no more images are unpacked at once, whatever the
# threads, than fit in memory: about 16 bytes are held for a pixel.
_LARGE = 2**22
_large_at_once = threading.BoundedSemaphore(
    max(1, memory.available() // (16 * MAX_PIXELS))
)
# Pixels whose channels are mixed at once.
_BLOCK = 2**20
# ITU-R BT.601, as in tf.image.rgb_to_grayscale.
_GREY_WEIGHTS = np.array([0.2989, 0.5870, 0.1140], np.float32)


def read(path):
    """The content of an image file, whose header is read before the rest.

    Args:
      path: `pathlib.Path`.

    Raises:
      UserError: naming the file, if it cannot be read, is not an image, has
        more than MAX_PIXELS, or far more bytes than its pixels can take.
    """
    with opened(path) as file:
        size = _open(file, path).size
    return read_bytes(path, _BYTES_PER_PIXEL * math.prod(size) + _OTHER_BYTES)


@contextlib.contextmanager
def decoded(content, name, color, invert=False):
    """A context for using an image; of an animation, its first frame.

    What is transparent becomes black, inverted or not, but where one grey or
    one colour of a PNG file is declared to be. Turned photographs stay turned,
    whatever their EXIF data say.

    Args:
      content: bytes, a PNG, JPEG, BMP, GIF or WebP file.
      name: what to call the file in a message.
      color: bool, whether to give three channels, else one.
      invert: bool, whether to turn dark to bright and bright to dark.

    Yields:
      uint8 array [H, W, 3] or [H, W, 1].

    Raises:
      UserError: naming the file, if it is not a sound image, has more than
        MAX_PIXELS, or does not fit in memory.
    """
    with _sound(name):
        if len(content) > MAX_BYTES:
            raise ValueError(f"it has more than {MAX_BYTES:,} bytes")
    large = math.prod(_open(io.BytesIO(content), name).size) > _LARGE
    with _large_at_once if large else contextlib.nullcontext():
        try:
            pixels = _convert(_pixels(content, name), color, invert)
        except MemoryError:
            raise UserError(
                f"{name}: there is not enough memory to unpack this image"
            ) from None
        yield pixels


def _open(file, name):
    """Reads the header alone; refuses more than MAX_PIXELS."""
    with _sound(name):
        if not file.read(1):
            raise ValueError("it is empty")
        file.seek(0)
        # Pillow's own limit only warns.
        Image.MAX_IMAGE_PIXELS = None
        image = Image.open(file, formats=FORMATS)
    width, height = image.size
    if width * height > MAX_PIXELS:
        raise UserError(
            f"{name} is an image of {height}x{width} pixels: those of more "
            f"than {MAX_PIXELS:,} are refused"
        )
    return image


def _pixels(content, name):
    """Array [H, W] or [H, W, channels], 8 or 16 bits."""
    image = _open(io.BytesIO(content), name)
    with _sound(name):
        if image.format == "PNG":
            # Checksums are not looked at while pixels are read.
            image.verify()
            image = _open(io.BytesIO(content), name)
        image.load()
        transparent = "transparency" in image.info
        # Pillow gives a GIF whose palette is all greys as grey.
        if image.mode == "P" or (image.format == "GIF" and transparent):
            image = image.convert("RGBA" if transparent else "RGB")
        elif image.mode == "1":
            image = image.convert("L")
        elif image.mode == "CMYK":
            image = image.convert("RGB")
        return np.asarray(image)


@contextlib.contextmanager
def _sound(name):
    """Says of whatever Pillow raises that the file is not a sound image."""
    try:
        yield
    except (UserError, MemoryError):
        raise
    # Files of all kinds of damage raise all kinds of errors.
    except Exception as error:
        lines = str(error).splitlines() or [type(error).__name__]
        unknown = isinstance(error, Image.UnidentifiedImageError)
        reason = "it is of another format" if unknown else lines[0]
        raise UserError(
            f"{name} is not a sound PNG, JPEG, BMP, GIF or WebP image: {reason}"
        ) from None


def _convert(pixels, color, invert):
    """Grey or coloured, with or without opacity -> uint8 [H, W, 1 or 3]."""
    if pixels.dtype != np.uint8:
        pixels = (pixels >> 8).astype(np.uint8)
    pixels = pixels.reshape(*pixels.shape[:2], -1)
    converted = np.empty((*pixels.shape[:2], 3 if color else 1), np.uint8)
    rows = max(1, _BLOCK // pixels.shape[1])
    for start in range(0, len(pixels), rows):
        block = slice(start, start + rows)
        converted[block] = _mix_channels(pixels[block], color, invert)
    return converted


def _mix_channels(pixels, color, invert):
    opacity = None
    if pixels.shape[-1] in (2, 4):
        pixels, opacity = pixels[..., :-1], pixels[..., -1:]
    mixed = pixels.astype(np.float32)
    if invert:
        mixed = 255.0 - mixed
    if opacity is not None:
        mixed = mixed * (opacity / np.float32(255.0))
    if not color and mixed.shape[-1] == 3:
        mixed = mixed @ _GREY_WEIGHTS[:, np.newaxis]
    return np.rint(mixed)
