import base64

import numpy as np
import pytest
import tensorflow as tf

from common.errors import UserError
from input_data.formats.image_file import decode

WEBP = (
    "UklGRjoAAABXRUJQVlA4TC0AAAAvAkAAAC8gECBIV25DQFB03XICAYJ05eY/QGxybBUo"
    "ZBsBTu0ekxO6iP7H9AIA"
)
RAMP = np.arange(0, 240, 10, dtype=np.uint8).reshape(4, 6, 1)


def png(image):
    return tf.io.encode_png(image).numpy()


def test_inverted_grey():
    np.testing.assert_array_equal(decode(png(RAMP), "x", False), RAMP)
    np.testing.assert_array_equal(
        decode(png(RAMP), "x", False, invert=True), 255 - RAMP
    )


def test_inverted_colours():
    image = np.concatenate([RAMP, RAMP // 2, 255 - RAMP], axis=-1)
    np.testing.assert_array_equal(
        decode(png(image), "x", True, invert=True), 255 - image
    )


def test_dark_on_transparent_paper_inverts_to_bright_on_black():
    # Black ink, more or less opaque: what a drawing program saves.
    ink = np.concatenate([np.zeros_like(RAMP), RAMP], axis=-1)
    assert decode(png(ink), "x", False).max() == 0
    np.testing.assert_array_equal(
        decode(png(ink), "x", False, invert=True), RAMP
    )


def test_webp():
    # 3x2 pixels, lossless: red, green, blue above black, grey, white.
    content = base64.b64decode(WEBP)
    red, green, blue = np.eye(3, dtype=int) * 255
    np.testing.assert_array_equal(
        decode(content, "x", True),
        [[red, green, blue], [[0] * 3, [128] * 3, [255] * 3]],
    )


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "Input is empty."),
        (b"hello", "Unknown image file format."),
        (png(RAMP)[:60], "Invalid PNG data, size 60"),
    ],
)
def test_no_images(content, reason):
    with pytest.raises(UserError) as error:
        decode(content, "a.png", False)
    assert str(error.value) == (
        f"a.png is not a sound PNG, JPEG, BMP, GIF or WebP image: {reason}"
    )
