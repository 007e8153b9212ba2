import concurrent.futures
import contextlib
import io
import struct
import threading
import time
import tracemalloc
import zlib

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageFile

from input_data.formats import image_file
from input_data.formats.image_file import decoded
from old.errors import UserError

RAMP = np.arange(0, 240, 10, dtype=np.uint8).reshape(4, 6, 1)
NOISE = np.random.default_rng(0).integers(0, 256, (13, 17, 4), np.uint8)
COLOURS = Image.fromarray(NOISE[..., :3])
PALETTE = COLOURS.quantize(50)
DEEP = np.random.default_rng(1).integers(0, 2**16, (13, 17, 4), np.uint16)


def decode(content, color, invert=False):
    with decoded(content, "x", color, invert) as image:
        return image


def png(image):
    return tf.io.encode_png(image).numpy()


def saved(image, image_format, **settings):
    file = io.BytesIO()
    image.save(file, image_format, **settings)
    return file.getvalue()


def smooth(**settings):
    rows, columns = np.mgrid[:37, :23]
    image = np.stack([rows * 4, columns * 9, 255 - rows * 3], -1)
    return saved(Image.fromarray(image.astype(np.uint8)), "JPEG", **settings)


FRAMES = [
    Image.fromarray(np.roll(NOISE[..., :3], step, axis=0)) for step in range(3)
]
ANIMATED = {"save_all": True, "append_images": FRAMES[1:]}
SOUND = {
    "grey PNG": png(NOISE[..., :1]),
    "grey PNG with opacity": png(NOISE[..., :2]),
    "colour PNG": png(NOISE[..., :3]),
    "colour PNG with opacity": png(NOISE),
    "16-bit grey PNG": png(DEEP[..., :1]),
    "16-bit grey PNG with opacity": png(DEEP[..., :2]),
    "16-bit colour PNG": png(DEEP[..., :3]),
    "16-bit colour PNG with opacity": png(DEEP),
    "PNG of a palette": saved(PALETTE, "PNG"),
    "PNG of a transparent palette": saved(
        PALETTE, "PNG", transparency=bytes(range(0, 250, 5))
    ),
    "PNG of a short palette": saved(COLOURS.quantize(10), "PNG", bits=4),
    "PNG of one bit": saved(COLOURS.convert("1"), "PNG"),
    "PNG of one transparent grey": saved(
        COLOURS.convert("L"), "PNG", transparency=100
    ),
    "grey JPEG": saved(COLOURS.convert("L"), "JPEG"),
    "JPEG": smooth(),
    "JPEG of all colours": smooth(subsampling=0, quality=100),
    "progressive JPEG": smooth(progressive=True, quality=40),
    "BMP": saved(COLOURS, "BMP"),
    "GIF": saved(PALETTE, "GIF"),
    "animated GIF": saved(FRAMES[0], "GIF", **ANIMATED),
    "WebP": saved(COLOURS, "WEBP"),
    "lossless WebP": saved(COLOURS, "WEBP", lossless=True),
    "WebP with opacity": saved(
        Image.fromarray(NOISE), "WEBP", lossless=True, exact=True
    ),
}


def by_tensorflow(content):
    """float32 [H, W, C]: another decoder, of the same standards."""
    if content.startswith(b"\xff\xd8"):
        return tf.io.decode_jpeg(content, dct_method="INTEGER_ACCURATE").numpy()
    return tf.io.decode_image(content, expand_animations=False).numpy()


@pytest.mark.parametrize("kind", SOUND)
def test_pixels_are_those_of_another_decoder(kind):
    expected = by_tensorflow(SOUND[kind]).astype(np.float32)
    if expected.shape[-1] in (2, 4):
        expected = expected[..., :-1] * (expected[..., -1:] / 255)
    colours = np.rint(np.broadcast_to(expected, (*expected.shape[:2], 3)))
    np.testing.assert_array_equal(decode(SOUND[kind], color=True), colours)
    if expected.shape[-1] == 3:
        weights = np.array([0.2989, 0.5870, 0.1140])
        expected = (expected * weights).sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(
        decode(SOUND[kind], color=False), expected, atol=0.51
    )


def test_animated_webp_gives_its_first_frame():
    content = saved(FRAMES[0], "WEBP", lossless=True, **ANIMATED)
    np.testing.assert_array_equal(decode(content, True), NOISE[..., :3])


def test_bmp_of_a_palette():
    content = saved(PALETTE, "BMP")
    expected = np.asarray(PALETTE.convert("RGB"))
    np.testing.assert_array_equal(decode(content, color=True), expected)


def test_transparent_gif_is_black_there():
    content = saved(PALETTE, "GIF", transparency=3)
    expected = np.asarray(PALETTE.convert("RGB")).copy()
    expected[np.asarray(PALETTE) == 3] = 0
    np.testing.assert_array_equal(decode(content, color=True), expected)


def test_transparent_gif_of_all_greys_is_black_there():
    greys = np.arange(256, dtype=np.uint8).reshape(16, 16, 1)
    content = saved(Image.fromarray(greys[..., 0]), "GIF", transparency=255)
    expected = np.where(greys == 255, 0, greys)
    np.testing.assert_array_equal(decode(content, color=False), expected)


def test_inverted():
    image = np.concatenate([RAMP, RAMP // 2, 255 - RAMP], axis=-1)
    for some, color in ((RAMP, False), (image, True)):
        found = decode(png(some), color, invert=True)
        np.testing.assert_array_equal(found, 255 - some)


def test_dark_on_transparent_paper_inverts_to_bright_on_black():
    # Black ink, more or less opaque: what a drawing program saves.
    ink = np.concatenate([np.zeros_like(RAMP), RAMP], axis=-1)
    assert decode(png(ink), False).max() == 0
    np.testing.assert_array_equal(decode(png(ink), False, invert=True), RAMP)


def test_blocks_of_rows_make_the_same_image(monkeypatch):
    whole = decode(png(NOISE), color=False)
    monkeypatch.setattr(image_file, "_BLOCK", 40)
    np.testing.assert_array_equal(decode(png(NOISE), color=False), whole)


NO_IMAGES = [
    (b"", "it is empty"),
    (b"hello", "it is of another format"),
    (b"\x00\x00\x01\x00" + bytes(90), "it is of another format"),  # an icon
    (png(RAMP)[:60], "[Tt]runcated|broken"),
    (SOUND["JPEG"][:300], "[Tt]runcated"),
    (SOUND["BMP"][:300], "truncated"),
    (SOUND["GIF"][:90], ""),
    (SOUND["lossless WebP"][:90], ""),
]


@pytest.mark.parametrize(("content", "reason"), NO_IMAGES)
def test_no_images(content, reason):
    message = (
        f"^x is not a sound PNG, JPEG, BMP, GIF or WebP image: .*({reason}).*$"
    )
    with pytest.raises(UserError, match=message) as error:
        decode(content, False)
    assert "\n" not in str(error.value)


def test_no_changed_byte_of_a_png_gives_other_pixels():
    # Where neighbours are alike, wrong bytes are often other pixels.
    pixels = np.zeros((50, 50, 3), "uint8")
    pixels[:] = np.arange(50)[:, None, None]
    sound = png(pixels)
    for place in range(len(sound)):
        changed = bytearray(sound)
        changed[place] ^= 0x10
        try:
            found = decode(bytes(changed), True)
        except UserError:
            continue
        np.testing.assert_array_equal(found, pixels)


@pytest.mark.parametrize("image_format", ["JPEG", "BMP", "GIF", "WEBP"])
def test_changed_bytes_give_an_image_or_a_user_error(image_format):
    content = saved(COLOURS, image_format)
    generator = np.random.default_rng(0)
    for place in generator.integers(0, len(content), 100):
        changed = bytearray(content)
        changed[place] ^= 0x55
        with contextlib.suppress(UserError):
            assert decode(bytes(changed), True).dtype == np.uint8


def chunk(kind, data):
    crc = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", crc)


def test_too_many_pixels_are_refused_before_they_are_unpacked():
    header = struct.pack(">2I5B", 20000, 20000, 8, 0, 0, 0, 0)
    content = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header)
    content += chunk(b"IDAT", zlib.compress(bytes(10**6)))
    tracemalloc.start()
    with pytest.raises(UserError, match="x is an image of 20000x20000 pixels"):
        decode(content, False)
    assert tracemalloc.get_traced_memory()[1] < 10**6
    tracemalloc.stop()


def test_too_many_bytes_are_refused(monkeypatch):
    monkeypatch.setattr(image_file, "MAX_BYTES", 99)
    with pytest.raises(UserError, match="it has more than 99 bytes"):
        decode(png(NOISE), False)


def test_an_image_that_memory_does_not_hold_is_named(monkeypatch):
    def fail(_):
        raise MemoryError

    monkeypatch.setattr(ImageFile.ImageFile, "load", fail)
    with pytest.raises(UserError, match="^x: there is not enough memory"):
        decode(png(NOISE), False)


@pytest.mark.parametrize("most", [1, 2])
def test_no_more_large_images_are_unpacked_at_once(monkeypatch, most):
    monkeypatch.setattr(image_file, "_LARGE", 10)
    semaphore = threading.BoundedSemaphore(most)
    monkeypatch.setattr(image_file, "_large_at_once", semaphore)
    together = threading.Barrier(most)
    using = []

    def use(number):
        with decoded(png(NOISE), "x", False):
            using.append(number)
            together.wait(timeout=60)
            time.sleep(0.01)  # others come meanwhile, if they may
            assert len(using) <= most
            using.remove(number)

    with concurrent.futures.ThreadPoolExecutor(4) as executor:
        list(executor.map(use, range(20)))
