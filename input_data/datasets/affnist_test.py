import numpy as np
import pytest
import scipy.io
import scipy.ndimage

from input_data.datasets import affnist
from input_data.registry import Split
from testing import commands, splits, tiny_files


@pytest.mark.parametrize("split", list(Split))
def test_generated_files_depend_on_the_seed_and_are_read(tmp_path, split):
    contents = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        folder = tmp_path / name
        affnist.generate("digits", None, split, str(folder), 1, seed)
        contents += [path.read_bytes() for path in folder.iterdir()]
    assert contents[0] == contents[1] != contents[2]
    spec = splits.load("affnist", split, folder).spec
    assert spec.num_examples > 300
    assert (spec.shape.height, spec.shape.width) == (40, 40)


def test_generates_from_mnist_in_its_order_with_its_labels(tmp_path):
    tiny_files.write_mnist(tmp_path)
    affnist.generate("mnist", str(tmp_path), Split.TEST, str(tmp_path), 3, 0)
    fields = scipy.io.loadmat(tmp_path / "test.mat")["affNISTdata"][0, 0]
    np.testing.assert_array_equal(fields["label_int"][0], [*range(7)] * 3)


def test_matrices_are_rotation_shear_and_scale_in_their_ranges():
    generator = np.random.default_rng(0)
    matrices = affnist.draw_matrices(generator, 4000)
    # matrix = rotation @ [[1, shear], [0, 1]] @ diag(scale): its first column
    # is the rotation's times scale[0].
    angle = np.arctan2(matrices[:, 1, 0], matrices[:, 0, 0])
    scale_x = np.hypot(matrices[:, 0, 0], matrices[:, 1, 0])
    scale_y = np.linalg.det(matrices) / scale_x
    along = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    shear = (along * matrices[:, :, 1]).sum(axis=1) / scale_y
    for values, low, high in (
        *((np.rad2deg(angle), -20, 20), (shear, -0.2, 0.2)),
        *((scale_x, 0.8, 1.2), (scale_y, 0.8, 1.2)),
    ):
        assert values.min() >= low - 1e-9
        assert values.max() <= high + 1e-9
        counts, _ = np.histogram(values, 10, (low - 1e-9, high + 1e-9))
        # 400 expected, standard deviation 19.
        assert abs(counts - 400).max() < 5 * 19


def test_warp_equals_scipy():
    image = tiny_files.random_images(1, 28, 28, 1)
    matrix = np.array([[1.1, -0.3], [0.2, 0.9]])
    offset = np.array([7.25, 3.5])
    warped = affnist.warp(image, matrix[None], offset[None])
    inverse = np.linalg.inv(matrix)
    # SciPy's axes are (row, column).
    change = inverse[::-1, ::-1], -(inverse @ offset)[::-1]
    expected = scipy.ndimage.affine_transform(
        image[0, ..., 0] * 1.0, *change, (40, 40), order=1, mode="grid-constant"
    )
    np.testing.assert_allclose(warped[0, ..., 0], expected, atol=0.51)


def test_all_ink_stays_on_the_canvas_at_every_place():
    count = 2000
    images = np.zeros((count, 28, 28, 1), np.uint8)
    images[:, 9:15, 11:15] = 255
    generator = np.random.default_rng(0)
    matrices = affnist.draw_matrices(generator, count)
    offsets = affnist.draw_offsets(generator, images, matrices)
    warped = affnist.warp(images, matrices, offsets)[..., 0]
    ink = warped.sum(axis=(1, 2), dtype=float)
    expected = 255 * 24 * np.linalg.det(matrices)
    # Sampling is not exact for single pixels; what is cut off would be less.
    assert abs(ink / expected - 1).max() < 0.12
    assert warped[:, [0, -1]].any(axis=(0, 2)).all()
    assert warped[:, :, [0, -1]].any(axis=(0, 1)).all()
    # The middle of the ink is about uniform over the canvas.
    columns = (warped.sum(axis=1) * np.arange(40)).sum(axis=1) / ink
    counts, _ = np.histogram(columns, 5, (5, 34))
    assert counts.min() > 0.7 * counts.max()


@pytest.mark.slow
def test_the_command(tmp_path):
    script = commands.ROOT / "input_data" / "affnist" / "affnist_generate.py"
    flags = "--dataset=digits", "--copies=1", "--output_dir=out"
    output = commands.output_of(script, *flags, cwd=tmp_path)
    assert "test.mat: 360 images" in output
    assert (tmp_path / "out" / "test.mat").is_file()
