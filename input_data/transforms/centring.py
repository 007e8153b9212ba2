"""Brings a drawn digit to the size and place that MNIST gave its own.

Source: Y. LeCun, C. Cortes, C. Burges, http://yann.lecun.com/exdb/mnist: each
digit is scaled to fit in 20x20 pixels with its proportions kept, which makes
it grey at its edges, and moved so that its centre of mass is the middle.
"""

import numpy as np

from input_data.transforms.resizing import resize

# Pixels of the longer side of a digit.
DIGIT_SIZE = 20


def centre(ink, size, offset=(0, 0)):
    """A drawn digit as MNIST would have it.

    Args:
      ink: uint8 array [H, W], 0 where nothing is drawn.
      size: (height, width) of the image to make, in pixels.
      offset: (rows, columns) from the middle of the image to where the centre
        of mass goes, as far as the digit then stays inside.

    Returns:
      uint8 array [height, width, 1], all 0 if nothing is drawn.
    """
    if not ink.any():
        return np.zeros((*size, 1), np.uint8)
    digit = ink[_extent(ink.any(axis=1)), _extent(ink.any(axis=0))]
    scale = min(DIGIT_SIZE, *size) / max(digit.shape)
    inner = [max(1, round(side * scale)) for side in digit.shape]
    digit = resize(digit[..., None], inner).numpy()
    if not digit.any():  # a few pixels of a large drawing
        return np.zeros((*size, 1), np.uint8)
    borders = []
    middle = np.array(size) / 2 + offset
    for axis, of_mass in enumerate(centre_of_mass(digit[..., 0])):
        wanted = round(float(middle[axis] - of_mass))
        free = size[axis] - inner[axis]
        before = min(max(wanted, 0), free)
        borders.append((before, free - before))
    return np.pad(digit, (*borders, (0, 0)))


def centre_of_mass(ink):
    """Rows and columns from the upper left corner: float64 [2].

    Args:
      ink: array [H, W] with some value above 0.
    """
    sums = [
        (np.arange(length) + 0.5) @ ink.sum(axis=1 - axis)
        for axis, length in enumerate(ink.shape)
    ]
    return np.array(sums) / ink.sum()


def _extent(is_drawn):
    """The slice from the first to the last place that is drawn."""
    drawn = np.flatnonzero(is_drawn)
    return slice(drawn[0], drawn[-1] + 1)
