"""Changes of images: moves, affine maps, noise, blur and occlusion.

A function takes an image, float32 [H, W, C] in [0, 1], its index n in the test
order, a severity and a seed, and returns the changed image. Random numbers come
from `numpy.random.default_rng([seed, n])`, whatever the other images are.
"""

import numpy as np
from scipy import ndimage


def shift(image, n, pixels, seed):
    """Moves in direction n mod 8: right, up right, up, ..; black comes in."""
    padded = np.pad(image, [(pixels, pixels)] * 2 + [(0, 0)])
    turn = n * np.pi / 4
    down, right = pixels * np.rint([-np.sin(turn), np.cos(turn)]).astype(int)
    height, width, _ = image.shape
    return padded[pixels - down :, pixels - right :][:height, :width]


def rotate(image, n, degrees, seed):
    """Rotates counterclockwise for even n, clockwise for odd n."""
    angle = np.radians((-1) ** n * degrees)
    cos, sin = np.cos(angle), np.sin(angle)
    return _affine(image, [[cos, sin], [-sin, cos]])


def scale(image, n, factor, seed):
    """Enlarges the content `factor` times."""
    return _affine(image, np.eye(2) / factor)


def shear(image, n, slope, seed):
    """Moves each row by `slope`, for odd n -`slope`, times its distance."""
    return _affine(image, [[1, 0], [(-1) ** n * slope, 1]])


def noise(image, n, deviation, seed):
    """Adds Gaussian noise and clips to [0, 1]."""
    normal = np.random.default_rng([seed, n]).normal(0, deviation, image.shape)
    return np.clip(image + normal, 0, 1)


def blur(image, n, deviation, seed):
    """Convolves with a Gaussian of this standard deviation in pixels."""
    return ndimage.gaussian_filter(image, (deviation, deviation, 0))


def occlude(image, n, side, seed):
    """Blackens a square with sides of `side` pixels at a random place."""
    rng = np.random.default_rng([seed, n])
    last = np.maximum(np.subtract(image.shape[:2], side), 0)
    top, left = rng.integers(0, last + 1)
    image = image.copy()
    image[top : top + side, left : left + side] = 0
    return image


def _affine(image, matrix):
    """Maps output to input coordinates about the center, bilinearly."""
    last = np.array(image.shape[:2]) - 1
    offset = last / 2 - matrix @ (last / 2)
    grid = np.moveaxis(np.indices(image.shape[:2]), 0, -1)
    places = grid @ np.transpose(matrix) + offset
    # Rounding must not move places on the border outside.
    is_inside = ((places > -1e-9) & (places < last + 1e-9)).all(axis=-1)
    options = {"offset": offset, "order": 1, "mode": "grid-constant"}
    channels = np.moveaxis(image, -1, 0)
    moved = [ndimage.affine_transform(c, matrix, **options) for c in channels]
    return np.where(is_inside[..., np.newaxis], np.stack(moved, axis=-1), 0)


CHANGES = {
    f.__name__: f for f in (shift, rotate, scale, shear, noise, blur, occlude)
}


def change_all(name, images, severity, seed):
    """The images [N, H, W, C], each changed by a function of `CHANGES`."""
    change = CHANGES[name]
    changed = [change(i, n, severity, seed) for n, i in enumerate(images)]
    return np.stack(changed).astype("float32")
