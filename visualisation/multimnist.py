"""Overlapping digits taken apart, as in the paper's figure 5."""

from common.errors import UserError
from visualisation import reconstructions
from visualisation.drawing import two_colors

# Two labels, two wrong predictions and an absent class.
_MIN_CLASSES = 5


def make(trained, num_examples=5):
    """Draws right predictions on the left and as many wrong on the right."""
    spec = trained.pipeline.spec
    if spec.num_targets != 2 or spec.shape.num_classes < _MIN_CLASSES:
        raise UserError(
            "the figure multimnist needs a checkpoint with --num_targets=2 "
            f"and at least {_MIN_CLASSES} classes"
        )
    title = "Two digits, the first in magenta, the second in green"
    picture = reconstructions.draw(
        trained, num_examples, column, title, absent_class
    )
    return {"multimnist.png": picture}


def column(trained, example):
    """Dict from row label to image, as `reconstructions.column`."""
    classes = [*example.labels, *example.predictions, absent_class(example)]
    images = trained.reconstruct(example.capsules[classes], classes)
    return {
        "input": example.image,
        "targets": two_colors(*example.targets),
        "reconstructions\nof labels": two_colors(*images[:2]),
        "reconstructions\nof predictions": (
            None if example.is_right else two_colors(*images[2:4])
        ),
        "label 1 and\nabsent class": two_colors(images[0], images[4]),
    }


def absent_class(example):
    """The class with the longest capsule that is no label and not predicted."""
    present = {*example.labels, *example.predictions}
    return next(label for label in example.ranking if label not in present)
