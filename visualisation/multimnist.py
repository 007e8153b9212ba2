"""Overlapping digits taken apart, as in the paper's figure 5."""

from common.errors import UserError
from visualisation import reconstructions
from visualisation.drawing import two_colors

# Right examples, and as many wrong ones.
NUM_EXAMPLES = 5
# Two labels, two wrong predictions and an absent class.
_LEAST_CLASSES = 5


def make(trained, num_examples=NUM_EXAMPLES):
    """Draws right examples on the left and wrong ones on the right.

    Args:
      trained: `TrainedModel`.
      num_examples: int, right examples, and as many wrong ones.

    Returns:
      Dict from file name to the bytes of a PNG file.

    Raises:
      UserError: if the network has no decoder, or not two targets.
    """
    trained.require_decoder()
    num_classes = trained.pipeline.spec.shape.num_classes
    if trained.num_targets != 2 or num_classes < _LEAST_CLASSES:
        raise UserError(
            "the figure multimnist needs a checkpoint with --num_targets=2 "
            f"and at least {_LEAST_CLASSES} classes"
        )
    picture = reconstructions.draw(
        trained,
        *trained.right_and_wrong(num_examples),
        panels,
        f"Two digits in one image: {trained.name}\n"
        "First class in magenta, second in green",
        absent_class,
    )
    return {"multimnist.png": picture}


def panels(trained, example):
    """The images of one column, as `reconstructions.panels`."""
    by_label = trained.reconstruct_example(example, example.labels)
    by_prediction = None
    if not example.is_right:
        by_prediction = two_colors(
            *trained.reconstruct_example(example, example.predictions)
        )
    (by_absent,) = trained.reconstruct_example(example, [absent_class(example)])
    return {
        "input": example.image,
        "targets": two_colors(*example.targets),
        "reconstructions\nof labels": two_colors(*by_label),
        "reconstructions\nof predictions": by_prediction,
        "label 1 and\nabsent class": two_colors(by_label[0], by_absent),
    }


def absent_class(example):
    """The class with the longest capsule that is no label and not predicted."""
    present = {*example.labels, *example.predictions}
    return next(label for label in example.ranking if label not in present)
