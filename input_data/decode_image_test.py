import io
import runpy
import sys
import tracemalloc
import zlib

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from common.errors import UserError
from input_data import files
from input_data.files import decode_image
from testing.tiny_files import random_images

(NOISE,) = random_images(1, 13, 17, 4)
DEEP = np.random.default_rng(1).integers(0, 2**16, (13, 17, 4), np.uint16)
COLORS = Image.fromarray(NOISE[..., :3])
PALETTE = COLORS.quantize(50)
OPACITY = bytes(range(0, 250, 5))


def png(image):
    return tf.io.encode_png(image).numpy()


def encode(image, kind, **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def decode(content, color=True, invert=False):
    return decode_image(content, "name", color, invert)


def test_heic_files_need_a_package(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    read = runpy.run_path(files.__file__)
    for name in ("a.heic", "b.png", "c.HEIC"):
        (tmp_path / name).touch()
    ignored = "2 files: .heic; HEIC needs pillow-heif"
    assert read["list_images"](tmp_path) == ([f"{tmp_path}/b.png"], ignored)


def test_heic_files_are_read_with_this_package(tmp_path):
    pytest.importorskip("pillow_heif")
    path = tmp_path / "a.HEIC"
    image = np.full((32, 48, 3), [200, 50, 100], np.uint8)
    image[:, 24:] //= 2
    Image.fromarray(image).save(path, "HEIF")
    assert files.list_images(tmp_path) == ([str(path)], "")
    decoded = files.decode_image(path.read_bytes(), path, color=True)
    assert files.image_shape(path, color=True) == (32, 48, 3)
    assert abs(decoded.astype(int) - image).mean() < 3


FILES = {
    **{f"PNG of {n} channels": png(NOISE[..., :n]) for n in range(1, 5)},
    **{f"16-bit PNG of {n} channels": png(DEEP[..., :n]) for n in range(1, 5)},
    "palette": encode(PALETTE, "PNG"),
    "transparent palette": encode(PALETTE, "PNG", transparency=OPACITY),
    "one bit": encode(COLORS.convert("1"), "PNG"),
    "JPEG": encode(COLORS, "JPEG", subsampling=0, quality=100),
    "gray JPEG": encode(COLORS.convert("L"), "JPEG"),
    "BMP": encode(COLORS, "BMP"),
    "GIF": encode(PALETTE, "GIF"),
    "WebP": encode(COLORS, "WEBP", lossless=True),
}


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("block", [2**20, 70])  # the image or four rows
def test_pixels_equal_those_of_tensorflow(monkeypatch, kind, block):
    monkeypatch.setattr(files, "_BLOCK", block)
    content = FILES[kind]
    if "JPEG" in kind:
        method = "INTEGER_ACCURATE"
        expected = tf.io.decode_jpeg(content, dct_method=method).numpy()
    else:
        expected = tf.io.decode_image(content, expand_animations=False).numpy()
    expected = expected.astype(np.float32)
    if expected.shape[-1] in (2, 4):
        expected = expected[..., :-1] * (expected[..., -1:] / 255)
    color = np.rint(np.broadcast_to(expected, (*expected.shape[:2], 3)))
    np.testing.assert_array_equal(decode(content), color)
    if expected.shape[-1] == 3:
        expected = expected @ np.array([[0.2989], [0.5870], [0.1140]])
    np.testing.assert_allclose(decode(content, False), expected, atol=0.51)


def test_large_images_take_little_memory():
    content = encode(Image.new("P", (4000, 3000), 3), "PNG")
    tracemalloc.start()
    try:
        decode(content, color=False)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 6 * 4000 * 3000  # bytes; 1 is the result


def test_flipped_bits_of_a_png_file_are_found():
    content = encode(Image.fromarray(NOISE[..., 0]).resize((40, 40)), "PNG")
    for place in range(8, len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 4
        try:
            image = decode(bytes(damaged), False)
        except UserError:
            continue
        np.testing.assert_array_equal(image, decode(content, False))


def test_inverted_images_keep_transparent_pixels_black():
    image = NOISE.copy()
    image[..., 3] = np.where(np.arange(17) < 5, 0, 255)
    inverted = decode(png(image), invert=True)
    np.testing.assert_array_equal(inverted[:, 5:], 255 - NOISE[:, 5:, :3])
    assert not inverted[:, :5].any()
    gray = NOISE[..., :1]
    np.testing.assert_array_equal(decode(png(gray), False, True), 255 - gray)


@pytest.mark.parametrize("kind", ["PNG", "GIF"])
def test_one_transparent_gray_becomes_black(kind):
    gray = NOISE[..., 0]
    content = encode(Image.fromarray(gray), kind, transparency=int(gray[2, 3]))
    expected = np.where(gray == gray[2, 3], 0, gray)
    np.testing.assert_array_equal(decode(content, False)[..., 0], expected)


def test_transparent_colors_of_other_bits_are_refused():
    parts = encode(Image.fromarray(NOISE[..., 0]), "PNG", transparency=3)
    header, body = bytearray(parts[12:29]), parts[33:]
    for bits in (2, 4, 16):
        header[12] = bits
        check = zlib.crc32(header).to_bytes(4, "big")
        with pytest.raises(UserError, match=f"^name .* {bits} bits"):
            decode(parts[:12] + bytes(header) + check + body)


def test_the_orientation_of_photographs_is_applied():
    exif = Image.Exif()
    exif[0x0112] = 6  # to be rotated by 90 degrees clockwise
    content = encode(COLORS, "PNG", exif=exif)
    np.testing.assert_array_equal(decode(content), np.rot90(NOISE[..., :3], -1))


@pytest.mark.parametrize("compressed", [True, False])
def test_large_metadata_is_skipped(compressed):
    text = PngInfo()
    text.add_text("Comment", "a" * 2**21, zip=compressed)
    text.add_itxt("Title", "a" * 2**21, zip=compressed)
    profile = bytes(2**21)
    content = encode(COLORS, "PNG", pnginfo=text, icc_profile=profile)
    np.testing.assert_array_equal(decode(content), NOISE[..., :3])


@pytest.mark.parametrize("kind", ["GIF", "WEBP"])
def test_the_first_frame_of_animations_is_read(kind):
    frames = [Image.new("RGB", (4, 3), (v, v, v)) for v in (9, 200)]
    options = {"save_all": True, "append_images": frames[1:], "lossless": True}
    content = encode(frames[0], kind, **options)
    np.testing.assert_array_equal(decode(content), np.full((3, 4, 3), 9))


def test_bombs_and_damaged_files_are_named(monkeypatch):
    contents = [b"", b"\x00\x00\x01\x00" + bytes(90)]  # the second: an icon
    contents += [content[: len(content) // 2] for content in FILES.values()]
    for content in contents:
        with pytest.raises(UserError, match="^name"):
            decode(content)
    with pytest.raises(UserError, match="name is not an image file"):
        decode(b"text")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(UserError, match="^name"):
        decode(png(NOISE))
