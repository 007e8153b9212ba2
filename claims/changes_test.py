import numpy as np
import pytest

from claims.changes import CHANGES, change_all
from claims.measures import TESTS, default_severities
from testing.numpy_oracle import DIRECTIONS

RNG = np.random.default_rng(0)


def images(count=9, height=7, width=6):
    return RNG.random((count, height, width, 2)).astype("float32")


@pytest.mark.parametrize("name", CHANGES)
def test_severity_0_changes_nothing(name):
    unchanged = images()
    severity = 1 if name == "scale" else 0
    assert severity in TESTS[name][1]
    changed = change_all(name, unchanged, severity, seed=3)
    np.testing.assert_array_equal(changed, unchanged)
    assert changed.dtype == np.float32


@pytest.mark.parametrize("pixels", [1, 3, 8])
def test_shifts(pixels):
    before = images()
    expected = np.zeros_like(before)
    for n, row, column in np.ndindex(before.shape[:3]):
        down, right = DIRECTIONS[n % 8]
        place = row + pixels * down, column + pixels * right
        if 0 <= place[0] < 7 and 0 <= place[1] < 6:
            expected[n][place] = before[n, row, column]
    after = change_all("shift", before, pixels, 0)
    np.testing.assert_array_equal(after, expected)


def test_default_severities_in_pixels_scale_with_the_shorter_side():
    for test, size, expected in (
        ("shift", (96, 56), tuple(range(0, 17, 2))),
        ("occlude", (7, 7), (0, 1, 2, 3, 4)),
        ("blur", (32, 24), (0, 0.43, 0.86, 1.29, 1.71, 2.14, 2.57)),
        ("rotate", (96, 96), TESTS["rotate"][1]),
    ):
        assert default_severities(test, np.zeros((1, *size, 3))) == expected


def source(name, severity, n, y, x):
    """The place, from the center, whose pixel goes to (y, x)."""
    signed = severity if n % 2 == 0 else -severity
    if name == "rotate":
        # Rows go down, so a positive angle turns counterclockwise.
        turned = (x - 1j * y) * np.exp(-1j * np.radians(signed))
        return -turned.imag, turned.real
    if name == "scale":
        return y / severity, x / severity
    return y, x + signed * y


def interpolated(image, y, x):
    """Bilinear values at places [H, W]; 0 outside of the pixels' centers."""
    height, width, _ = image.shape
    rows = np.maximum(0, 1 - abs(y[..., None] - np.arange(height)))
    columns = np.maximum(0, 1 - abs(x[..., None] - np.arange(width)))
    values = np.einsum("pqi,pqj,ijc->pqc", rows, columns, image, optimize=True)
    # Rounded coordinates may be a little beyond the border.
    is_inside = (y > -1e-9) & (y < height - 1 + 1e-9)
    is_inside &= (x > -1e-9) & (x < width - 1 + 1e-9)
    return np.where(is_inside[..., None], values, 0)


@pytest.mark.parametrize(
    ("name", "severity"),
    [
        *(("rotate", 75), ("rotate", 90), ("rotate", 180)),
        *(("scale", 0.65), ("scale", 1.3), ("shear", 0.4)),
    ],
)
@pytest.mark.parametrize("height", [7, 10, 16, 20, 28, 31, 32, 40, 60, 64])
@pytest.mark.parametrize("wider", [-1, 0])
def test_affine_changes(name, severity, height, wider):
    before = images(2, height, height + wider)
    rows, columns = np.indices(before.shape[1:3], float)
    middle, center = (height - 1) / 2, (height + wider - 1) / 2
    after = change_all(name, before, severity, 0)
    for n, image in enumerate(before):
        y, x = source(name, severity, n, rows - middle, columns - center)
        expected = interpolated(image, y + middle, x + center)
        np.testing.assert_allclose(after[n], expected, atol=1e-5)


def test_random_changes_of_an_image_depend_on_its_index_alone():
    before = images()
    noisy = change_all("noise", before, 0.2, seed=5)
    other = np.concatenate([images(4), before[4:]])
    other = change_all("noise", other, 0.2, seed=5)
    np.testing.assert_array_equal(other[4:], noisy[4:])
    added = np.random.default_rng([5, 6]).normal(0, 0.2, before[6].shape)
    expected = np.clip(before[6] + added, 0, 1)
    np.testing.assert_allclose(noisy[6], expected, atol=1e-6)
    occluded = change_all("occlude", before, 3, seed=5)
    rows, columns = np.nonzero((occluded[6] != before[6]).all(axis=-1))
    assert (np.ptp(rows), np.ptp(columns), len(rows)) == (2, 2, 9)
    assert not occluded[6][rows, columns].any()
    assert not change_all("occlude", before, 14, seed=5).any()


def test_blur():
    point = np.zeros((1, 21, 21, 2), "float32")
    point[0, 10, 10, 0] = 1
    (blurred,) = change_all("blur", point, 1.5, 0)
    distance = np.arange(-10, 11)
    bell = np.exp(-(distance**2) / (2 * 1.5**2))
    expected = np.outer(bell, bell) / bell.sum() ** 2
    np.testing.assert_allclose(blurred[..., 0], expected, atol=1e-4)
    assert not blurred[..., 1].any()
