"""What stands where in a picture, from its Matplotlib figure."""

import typing

import numpy as np


class Cell(typing.NamedTuple):
    """One place of a grid of images; `images` are RGB arrays [H, W, 3]."""

    title: str
    color: str  # of the title
    label: str
    images: list


def cells(picture):
    """List of the `Cell`s of a `Picture` made of images, row by row."""
    return [
        Cell(
            axes.get_title(),
            axes.title.get_color(),
            axes.get_ylabel(),
            [np.asarray(image.get_array()) for image in axes.images],
        )
        for axes in picture.figure.axes
    ]


def assert_images(found, expected):
    """Compares the only images of cells with images, None for no image."""
    for cell, image in zip(found, expected, strict=True):
        if image is None:
            assert not cell.images
        else:
            np.testing.assert_allclose(*cell.images, image, atol=1e-5)
