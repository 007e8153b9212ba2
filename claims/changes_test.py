import numpy as np
import pytest

from claims.changes import CHANGES, change_all
from claims.measures import TESTS
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


def source(name, severity, n, y, x):
    """The place, from the center, whose pixel goes to (y, x)."""
    signed = severity if n % 2 == 0 else -severity
    if name == "rotate":
        # Rows go down, so a positive angle turns counterclockwise.
        turned = (x - 1j * y) * np.exp(-1j * np.radians(signed))
        return -turned.imag, turned.real
    return (
        (y / severity, x / severity) if name == "scale" else (y, x + signed * y)
    )


@pytest.mark.parametrize(
    ("name", "severity"),
    [
        ("rotate", 75),
        ("rotate", 25),
        ("scale", 0.65),
        ("scale", 1.3),
        ("shear", 0.4),
    ],
)
def test_affine_changes(name, severity):
    before = images(count=2)
    expected = np.zeros(before.shape)
    for n, row, column in np.ndindex(before.shape[:3]):
        y, x = source(name, severity, n, row - 3, column - 2.5)
        y, x = y + 3, x + 2.5
        for i, j in np.ndindex(7, 6):
            if -1e-9 <= y <= 6 + 1e-9 and -1e-9 <= x <= 5 + 1e-9:
                weight = max(0, 1 - abs(y - i)) * max(0, 1 - abs(x - j))
                expected[n, row, column] += weight * before[n, i, j]
    after = change_all(name, before, severity, 0)
    np.testing.assert_allclose(after, expected, atol=1e-5)


def test_random_changes_of_an_image_depend_on_its_index_alone():
    before = images()
    noisy = change_all("noise", before, 0.2, seed=5)
    other = np.concatenate([images(4), before[4:]])
    np.testing.assert_array_equal(
        change_all("noise", other, 0.2, 5)[4:], noisy[4:]
    )
    added = np.random.default_rng([5, 6]).normal(0, 0.2, before[6].shape)
    expected = np.clip(before[6] + added, 0, 1)
    np.testing.assert_allclose(noisy[6], expected, atol=1e-6)
    occluded = change_all("occlude", before, 3, seed=5)
    rows, columns = np.nonzero((occluded[6] != before[6]).all(axis=-1))
    assert (np.ptp(rows), np.ptp(columns), len(rows)) == (2, 2, 9)
    assert not occluded[6][rows, columns].any()
    assert not change_all("occlude", before, 14, seed=5).any()


def test_blur():
    point = np.zeros((1, 21, 21, 1), "float32")
    point[0, 10, 10] = 1
    (blurred,) = change_all("blur", point, 1.5, 0)
    distance = np.arange(-10, 11)
    bell = np.exp(-(distance**2) / (2 * 1.5**2))
    expected = np.outer(bell, bell) / bell.sum() ** 2
    np.testing.assert_allclose(blurred[..., 0], expected, atol=1e-4)
