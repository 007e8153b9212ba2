import numpy as np
import pytest

from input_data.transforms.centring import centre, centre_of_mass


def stroke(size, rows, columns):
    ink = np.zeros((size, size), np.uint8)
    ink[rows, columns] = 255
    return ink


def extents(image):
    return tuple(int(image.any(axis=axis).sum()) for axis in ((1, 2), (0, 2)))


@pytest.mark.parametrize(
    ("rows", "columns", "expected"),
    [
        (slice(10, 210), slice(200, 240), (20, 4)),
        (slice(0, 3), slice(5, 35), (2, 20)),
        (slice(70, 71), slice(70, 71), (20, 20)),
    ],
)
def test_the_longer_side_takes_20_pixels_in_the_middle(rows, columns, expected):
    image = centre(stroke(280, rows, columns), (28, 28))
    assert image.shape == (28, 28, 1)
    assert extents(image) == expected
    np.testing.assert_allclose(centre_of_mass(image[..., 0]), 14, atol=0.51)


def test_the_centre_of_mass_is_in_the_middle_not_that_of_the_box():
    ink = stroke(100, slice(0, 100), slice(0, 20))
    ink[80:, :60] = 255
    image = centre(ink, (28, 28))[..., 0]
    assert extents(image[..., None]) == (20, 12)
    np.testing.assert_allclose(centre_of_mass(image), 14, atol=0.51)
    rows, columns = np.nonzero(image)
    assert rows.min() + rows.max() + 1 < 26
    assert columns.min() + columns.max() + 1 > 30


def test_edges_become_grey():
    rows, columns = np.indices((280, 280))
    slanted = np.uint8(255) * (abs(rows - 2 * columns) < 30)
    assert len(np.unique(centre(slanted, (28, 28)))) > 10


def test_an_offset_moves_it_as_far_as_it_stays_inside():
    ink = stroke(100, slice(0, 100), slice(0, 100))
    image = centre(ink, (36, 40), offset=(4, -3))
    np.testing.assert_allclose(centre_of_mass(image[..., 0]), [22, 17])
    image = centre(ink, (36, 40), offset=(50, -50))
    np.testing.assert_allclose(centre_of_mass(image[..., 0]), [26, 10])


def test_a_digit_is_not_larger_than_the_image():
    assert (centre(stroke(9, slice(2, 9), slice(2, 9)), (8, 8)) == 255).all()


def test_dots_that_vanish_when_it_is_scaled():
    ink = np.zeros((280, 280), np.uint8)
    ink[0, 0] = ink[-1, -1] = 255
    assert not centre(ink, (28, 28)).any()


def test_nothing_drawn():
    assert not centre(np.zeros((50, 50), np.uint8), (28, 28)).any()
