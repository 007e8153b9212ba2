"""Each dimension of a class capsule moved: the paper's figure 4."""

import numpy as np

from common.errors import UserError
from visualisation.drawing import image_grid

# From -0.25 to 0.25 by 0.05.
OFFSETS = np.arange(-5, 6) * 0.05
NUM_EXAMPLES = 10


def make(trained, num_examples=NUM_EXAMPLES):
    """Draws one figure for the first right example of each class.

    With two targets the perturbed capsule is that of the first.

    Args:
      trained: `TrainedModel`.
      num_examples: int, number of classes.

    Returns:
      Dict from file name to the bytes of a PNG file.

    Raises:
      UserError: if the network has no decoder, or no prediction is right.
    """
    trained.require_decoder()
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


def reconstructions(trained, example, label):
    """Images of the capsule of one class with one dimension moved.

    Returns:
      float32 array [A, K, H, W, C]: [d, k] has OFFSETS[k] added to dimension d.
    """
    capsule = example.capsules[label]
    moved = capsule + np.eye(len(capsule))[:, None, :] * OFFSETS[:, None]
    vectors = moved.reshape(-1, len(capsule))
    # The decoder masks all other classes.
    capsules = np.repeat(vectors[:, None], len(example.capsules), axis=1)
    images = trained.reconstruct(capsules, [label] * len(capsules))
    return images.reshape(len(capsule), len(OFFSETS), *images.shape[1:])


def _draw(trained, example, label):
    images = reconstructions(trained, example, label)
    labels = [
        # Adding 0 removes the sign of a rounded -0.
        f"dimension {index} ({round(float(value), 2) + 0.0:.2f})"
        for index, value in enumerate(example.capsules[label])
    ]
    return image_grid(
        [
            dict(zip(labels, column, strict=True))
            for column in images.swapaxes(0, 1)
        ],
        [f"{offset:+.2f}" if offset else "0" for offset in OFFSETS],
        f"Capsule of class {trained.class_text([label])}: each dimension moved "
        f"around its value (in parentheses)\n{trained.name}",
    )
