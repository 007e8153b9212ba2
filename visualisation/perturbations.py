"""Each dimension of a class capsule moved: the paper's figure 4."""

import numpy as np

from common.errors import UserError
from visualisation.drawing import image_grid

# From -0.25 to 0.25 by 0.05.
OFFSETS = np.arange(-5, 6) * 0.05


def make(trained, num_examples=10):
    """Draws the first right prediction of each of `num_examples` classes.

    With two targets it moves the capsule of the first.
    """
    examples = {}
    for example in trained.examples():
        if example.is_right:
            examples.setdefault(example.labels[0], example)
        if len(examples) == min(num_examples, len(example.lengths)):
            break
    if not examples:
        raise UserError(f"{trained.name}: no prediction is right")
    return {
        f"perturbations_{label}.png": _draw(trained, example, label)
        for label, example in sorted(examples.items())
    }


def reconstructions(trained, capsule, label):
    """Images of the capsule [A] of a class with one dimension moved.

    Returns:
      float32 array [A, K, H, W, C]: [d, k] has OFFSETS[k] added to dimension d.
    """
    size = len(capsule)
    moved = capsule + np.eye(size)[:, None, :] * OFFSETS[:, None]
    vectors = moved.reshape(-1, size)
    images = trained.reconstruct(vectors, [label] * len(vectors))
    return images.reshape(size, len(OFFSETS), *images.shape[1:])


def _draw(trained, example, label):
    capsule = example.capsules[label]
    return image_grid(
        [list(row) for row in reconstructions(trained, capsule, label)],
        f"Capsule of class {trained.class_text([label])}: each dimension moved "
        f"around its value (in parentheses)\n{trained.name}",
        titles=[f"{offset:+.2f}" if offset else "0" for offset in OFFSETS],
        labels=[f"dimension {d} ({v:z.2f})" for d, v in enumerate(capsule)],
    )
