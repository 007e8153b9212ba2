"""Generated photographs: striped ellipses of three classes that overlap."""

import numpy as np
from PIL import Image

COUNTS = {"cat": 200, "dog": 80, "fox": 20}
_SIZE = 64


def write_photographs(folder, counts=COUNTS, seed=0):
    """Writes JPEG files of 64x64 to a folder for each class."""
    for index, (name, count) in enumerate(counts.items()):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            rng = np.random.default_rng([seed, index, number])
            image = Image.fromarray(photograph(index, rng))
            image.save(folder / name / f"{number:04}.jpg", quality=90)


def photograph(index, rng):
    """A photograph of the class `index`, 0 to 2: uint8 [64, 64, 3]."""
    angle = np.radians(60 * index + rng.normal(0, 18))
    width = max(0.5, 1 + 0.25 * index + rng.normal(0, 0.2))
    flatness = np.exp(0.3 * (index - 1) + rng.normal(0, 0.25))
    rows, columns = np.mgrid[:_SIZE, :_SIZE] - rng.uniform(24, 40, (2, 1, 1))
    radius = rng.uniform(14, 22)
    inside = (rows * flatness) ** 2 + (columns / flatness) ** 2 < radius**2
    along = rows * np.sin(angle) + columns * np.cos(angle)
    stripes = np.sin(along / width + rng.uniform(0, 6.28))
    fur = rng.uniform(80, 180, 3) + 45 * stripes[..., None]
    coarse = Image.fromarray(rng.integers(40, 216, (6, 6, 3), np.uint8))
    background = np.asarray(coarse.resize((_SIZE, _SIZE), Image.BICUBIC), float)
    image = np.where(inside[..., None], fur, background)
    image += rng.normal(0, 20, image.shape)
    return np.clip(image, 0, 255).astype(np.uint8)
