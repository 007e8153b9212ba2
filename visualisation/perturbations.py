"""What each dimension of a class capsule means: the paper's figure 4."""

import numpy as np

from old.errors import UserError
from visualisation.drawing import mosaic_png, to_rgb

# The paper's figure 4: from -0.25 to 0.25 by 0.05.
OFFSETS = np.arange(-5, 6) * 0.05
# One figure for an example of each of so many classes.
NUM_EXAMPLES = 10


def perturbed(capsule):
    """A capsule with one dimension at a time moved by each of `OFFSETS`.

    Args:
      capsule: array [A].

    Returns:
      Array [A, K, A]: entry [d, k] is the capsule with OFFSETS[k] added to
      dimension d.
    """
    return capsule + np.eye(len(capsule))[:, None, :] * OFFSETS[:, None]


def redrawn(subject, example, label):
    """Images that the perturbed capsules of one class give.

    Returns:
      float32 array [A, K, H, W, C].
    """
    vectors = perturbed(example.capsules[label])
    atoms, count, _ = vectors.shape
    # The decoder sees all other classes as zeros anyway.
    capsules = np.zeros((atoms * count, *example.capsules.shape), "float32")
    capsules[:, label] = vectors.reshape(atoms * count, atoms)
    images = subject.redraw(capsules, [label] * len(capsules))
    return images.reshape(atoms, count, *images.shape[1:])


def make(subject, num_examples=NUM_EXAMPLES):
    """A figure for the first right example of each class.

    With two targets the perturbed capsule is that of the first.

    Args:
      subject: `TrainedModel`.
      num_examples: int, for how many classes.

    Returns:
      Dict from file name to the bytes of a PNG file.

    Raises:
      UserError: if the network has no decoder, or no prediction is right.
    """
    subject.require_decoder()
    examples = _one_of_each_class(subject, num_examples)
    if not examples:
        raise UserError(
            f"{subject.name}: no prediction is right, so there is no capsule "
            "to perturb"
        )
    return {
        f"perturbations_{label}.png": _draw(subject, example, label)
        for label, example in sorted(examples.items())
    }


def _one_of_each_class(subject, count):
    """Dict from class to its first right example, of at most `count`."""
    num_classes = subject.pipeline.spec.shape.num_classes
    found = {}
    for example in subject.examples():
        if example.is_right:
            found.setdefault(example.labels[0], example)
        if len(found) == min(count, num_classes):
            break
    return found


def _draw(subject, example, label):
    images = redrawn(subject, example, label)
    capsule = example.capsules[label]
    return mosaic_png(
        [[to_rgb(image) for image in row] for row in images],
        f"Capsule of class {subject.names_of([label])}: each dimension moved "
        f"around its value (in parentheses)\n{subject.name}",
        [
            # Adding 0 takes the sign from a rounded -0.
            f"dimension {number} ({round(float(value), 2) + 0.0:.2f})"
            for number, value in enumerate(capsule)
        ],
        {"": [f"{offset:+.2f}" if offset else "0" for offset in OFFSETS]},
    )
