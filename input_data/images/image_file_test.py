import numpy as np
import pytest
import tensorflow as tf

from errors import UserError
from input_data.images.image_file import decode

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


def test_no_images():
    for content in (b"", b"hello", png(RAMP)[:60]):
        with pytest.raises(UserError, match="^a.png is not a sound PNG, JPEG"):
            decode(content, "a.png", False)
