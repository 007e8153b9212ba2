import numpy as np
import pytest
import scipy.io

from common.errors import UserError
from config import Config
from input_data import registry
from input_data.generators import affine
from input_data.images import LabelledImages
from input_data.splits import Split
from testing import tiny_files


def square(top, left, height, width):
    """One image uint8 [1, 28, 28, 1] with a white rectangle."""
    image = np.zeros((1, 28, 28, 1), np.uint8)
    image[:, top : top + height, left : left + width] = 255
    return image


@pytest.mark.parametrize("split", list(Split))
def test_generated_files_are_found_and_read(tmp_path, split):
    affine.generate("digits", None, split, str(tmp_path / "new"), 1, 0)
    config = Config(data_dir=str(tmp_path / "new"))
    pipeline = registry.load("affnist", split, config)
    assert pipeline.spec.num_examples > 300
    assert (pipeline.spec.shape.height, pipeline.spec.shape.width) == (40, 40)


def test_generates_from_mnist_in_its_order_with_its_labels(tmp_path):
    tiny_files.write_idx(tmp_path)
    affine.generate("mnist", str(tmp_path), Split.TEST, str(tmp_path), 3, 0)
    fields = scipy.io.loadmat(tmp_path / "test.mat")["affNISTdata"][0, 0]
    np.testing.assert_array_equal(fields["label_int"][0], [*range(7)] * 3)


def test_the_seed_fixes_the_bytes_of_the_file(tmp_path):
    contents = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        affine.generate(
            "digits", None, Split.TEST, str(tmp_path / name), 1, seed
        )
        contents.append((tmp_path / name / "test.mat").read_bytes())
    assert contents[0] == contents[1] != contents[2]


def test_an_existing_file_stays(tmp_path):
    path = tmp_path / "test.mat"
    path.write_text("before")
    with pytest.raises(UserError):
        affine.generate("digits", None, Split.TEST, tmp_path, 1, 0)
    assert path.read_text() == "before"


def test_matrices_are_rotation_shear_and_scale_in_their_ranges():
    generator = np.random.default_rng(0)
    matrices = affine.draw_matrices(generator, 4000)
    # matrix = rotation @ [[1, shear], [0, 1]] @ diag(scale): its first column
    # is the rotation's times scale[0].
    angle = np.arctan2(matrices[:, 1, 0], matrices[:, 0, 0])
    scale_x = np.hypot(matrices[:, 0, 0], matrices[:, 1, 0])
    scale_y = np.linalg.det(matrices) / scale_x
    along = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    shear = (along * matrices[:, :, 1]).sum(axis=1) / scale_y
    for values, low, high in (
        (np.rad2deg(angle), -20, 20),
        (shear, -0.2, 0.2),
        (scale_x, 0.8, 1.2),
        (scale_y, 0.8, 1.2),
    ):
        assert values.min() >= low - 1e-9
        assert values.max() <= high + 1e-9
        counts, _ = np.histogram(values, 10, (low - 1e-9, high + 1e-9))
        # 400 expected, standard deviation 19.
        assert abs(counts - 400).max() < 5 * 19


def test_warp_without_transformation_moves_by_whole_pixels():
    image = tiny_files.random_images(1, 28, 28, 1)
    warped = affine.warp(image, np.eye(2)[np.newaxis], np.array([[9.0, 4.0]]))
    expected = np.zeros((1, 40, 40, 1), np.uint8)
    expected[:, 4:32, 9:37] = image
    np.testing.assert_array_equal(warped, expected)


def test_warp_agrees_with_an_explicit_loop():
    image = tiny_files.random_images(1, 28, 28, 1)
    matrix = np.array([[1.1, -0.3], [0.2, 0.9]])
    offset = np.array([7.25, 3.5])
    warped = affine.warp(image, matrix[None], offset[None])
    pixels = np.pad(image[0, ..., 0].astype(float), 1)
    for row in range(40):
        for column in range(40):
            x, y = np.linalg.solve(matrix, np.array([column, row]) - offset)
            left, top = int(np.floor(x)), int(np.floor(y))
            expected = 0.0
            for i in (0, 1):
                for j in (0, 1):
                    if -1 <= top + i <= 28 and -1 <= left + j <= 28:
                        weight = (1 - abs(y - top - i)) * (
                            1 - abs(x - left - j)
                        )
                        pixel = pixels[top + i + 1, left + j + 1]
                        expected += weight * pixel
            assert abs(warped[0, row, column, 0] - expected) <= 0.51


def test_all_ink_stays_on_the_canvas_at_every_place():
    count = 2000
    images = np.repeat(square(9, 11, 6, 4), count, axis=0)
    generator = np.random.default_rng(0)
    matrices = affine.draw_matrices(generator, count)
    offsets = affine.draw_offsets(generator, images, matrices)
    warped = affine.warp(images, matrices, offsets)[..., 0]
    ink = warped.sum(axis=(1, 2), dtype=float)
    expected = 255 * 24 * np.linalg.det(matrices)
    # Sampling is not exact for single pixels; what is cut off would be less.
    assert abs(ink / expected - 1).max() < 0.12
    assert warped[:, 0].any()
    assert warped[:, -1].any()
    assert warped[:, :, 0].any()
    assert warped[:, :, -1].any()
    # The middle of the ink is about uniform over the canvas.
    columns = (warped.sum(axis=1) * np.arange(40)).sum(axis=1) / ink
    counts, _ = np.histogram(columns, 5, (5, 34))
    assert counts.min() > 0.7 * counts.max()


def test_ink_larger_than_the_canvas_is_centered():
    image = np.full((1, 60, 60, 1), 255, np.uint8)
    (offset,) = affine.draw_offsets(
        np.random.default_rng(0), image, np.eye(2)[np.newaxis]
    )
    # Pixels 0 to 59 about the middle of 0 to 39.
    np.testing.assert_allclose(offset, [-10, -10])


def test_an_image_without_ink_stays_black():
    data = LabelledImages(np.zeros((2, 28, 28, 1), np.uint8), np.arange(2), 10)
    assert not affine.transform(data, 2, 0).images.any()


def test_copies_differ():
    data = LabelledImages(square(9, 9, 9, 9), np.array([3]), 10)
    transformed = affine.transform(data, 20, 0)
    assert len(np.unique(transformed.images, axis=0)) == 20
    np.testing.assert_array_equal(transformed.labels, [3] * 20)
