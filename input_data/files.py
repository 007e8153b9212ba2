"""Finds the files of a data set, unpacks them and decodes images."""

import contextlib
import functools
import gzip
import io
import os
import pathlib
import re
import unicodedata
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import PIL
from PIL import ExifTags, Image, ImageOps, PngImagePlugin

from common.errors import UserError, user_errors

_FORMATS = ["PNG", "JPEG", "BMP", "GIF", "WEBP"]
_SUFFIXES = [".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".bmp", ".gif", ".webp"]
_HEIC_HINT = "; HEIC needs pillow-heif"
with contextlib.suppress(ImportError):
    import pillow_heif

    pillow_heif.register_heif_opener()
    _FORMATS.append("HEIF")
    _SUFFIXES += ".heic", ".heif"
    _HEIC_HINT = ""
# Whether a file or folder of this name is ignored without a warning.
is_hidden = re.compile(r"\.|__MACOSX$").match
normal_form = functools.partial(unicodedata.normalize, "NFC")
# Some editors store more metadata than Pillow allows (1 and 64 MiB).
PngImagePlugin.MAX_TEXT_CHUNK = PngImagePlugin.MAX_TEXT_MEMORY = 2**28
_BLOCK = 2**20  # pixels or bytes at once
# Decodes files; each of them takes 10 bytes for each pixel.
POOL = ThreadPoolExecutor(min(8, os.cpu_count() or 1))
_ORIENTATION = ExifTags.Base.Orientation
# ITU-R BT.601, as in tf.image.rgb_to_grayscale.
_GRAY_WEIGHTS = np.array([[0.2989], [0.5870], [0.1140]], np.float32)


def find_file(data_dir, *names, hint=""):
    """The first of `names` that is a file in `data_dir`, else a UserError."""
    for name in names:
        path = pathlib.Path(data_dir, name)
        if path.is_file():
            return path
    raise UserError(f"--data_dir={data_dir} has no {' or '.join(names)}{hint}")


def list_images(folder):
    """The sorted images below a folder, and a text on its other files."""
    # Links to nothing and closed folders count as images: reading reports them.
    images, kinds, seen = [], [], set()
    for place, folders, names in os.walk(
        folder, onerror=lambda e: images.append(e.filename), followlinks=True
    ):
        if os.path.realpath(place) in seen:  # a link to a folder above
            names, folders[:] = [], []
        seen.add(os.path.realpath(place))
        folders[:] = [name for name in folders if not is_hidden(name)]
        for path in [os.path.join(place, n) for n in names if not is_hidden(n)]:
            suffix = pathlib.Path(path).suffix.lower()
            if suffix not in _SUFFIXES:
                kinds.append(suffix or "no suffix")
            elif os.path.isfile(path) or not os.path.exists(path):
                images.append(path)
    text = f"{len(kinds)} files: {' '.join(sorted({*kinds}))}" if kinds else ""
    return sorted(images), text + _HEIC_HINT * (".heic" in kinds)


@contextlib.contextmanager
def open_file(path):
    """Opens a file, unpacked if it is a .gz; failures become `UserError`."""
    is_packed = path.suffix == ".gz"
    open_any = gzip.open if is_packed else open
    with user_errors(path), open_any(path, "rb") as file:
        yield file
        while is_packed and file.read(_BLOCK):  # the checksum is at the end
            pass


def decode_image(content, name, color, invert=False):
    """Decodes an image, or the first frame of an animation.

    `content` holds the bytes of the file `name`. `invert` makes dark pixels
    bright but keeps transparent ones black. Returns uint8 [H, W, 3] if `color`,
    else [H, W, 1]. Raises UserError if Pillow refuses the file.
    """
    with user_errors(name):
        # Only `verify` reads the checksums of PNG files; it ends the use.
        _open_image(io.BytesIO(content), name).verify()
        image = _open_image(io.BytesIO(content), name)
        has_value = image.format == "PNG" and image.mode != "P"
        if has_value and "transparency" in image.info and content[24] != 8:
            raise UserError(
                f"{name} has a transparent color of {content[24]} bits; save "
                "it with 8 bits or an alpha channel"
            )
        image = ImageOps.exif_transpose(image)
        width, height = image.size
        rows = max(1, _BLOCK // width)
        # In parts, as float32 takes 16 bytes for each pixel.
        ends = ((y, min(y + rows, height)) for y in range(0, height, rows))
        parts = (image.crop((0, top, width, end)) for top, end in ends)
        return np.concatenate([_to_uint8(p, color, invert) for p in parts])


def image_shape(path, color):
    """The shape that `decode_image` gives, found in the file's header."""
    with user_errors(path), open(path, "rb") as file:
        image = _open_image(file, path)
        # Without this test Pillow would decode PNG files to find the EXIF.
        has_exif = "exif" in image.info
        is_turned = has_exif and image.getexif().get(_ORIENTATION, 1) > 4
        width, height = image.size[::-1] if is_turned else image.size
    return height, width, 3 if color else 1


def _open_image(file, name):
    try:
        return Image.open(file, formats=_FORMATS)
    except PIL.UnidentifiedImageError:
        # Pillow's message names an object in memory.
        raise UserError(
            f"{name} is not an image file ({', '.join(_FORMATS)}{_HEIC_HINT})"
        ) from None


def _to_uint8(image, color, invert):
    is_opaque = image.mode == "RGB" and "transparency" not in image.info
    if is_opaque and color and not invert:
        return np.asarray(image)
    is_gray = image.mode in ("1", "L", "LA", "I;16")
    if image.mode == "I;16":
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    image = image.convert("LA" if is_gray else "RGBA")
    pixels = np.asarray(image, np.float32)
    values, opacity = pixels[..., :-1], pixels[..., -1:] / 255
    if invert:
        values = 255 - values
    values = values * opacity
    if color:
        values = np.broadcast_to(values, (*values.shape[:2], 3))
    elif not is_gray:
        values = values @ _GRAY_WEIGHTS
    return np.rint(values).astype(np.uint8)
