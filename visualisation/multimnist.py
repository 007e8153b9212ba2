"""Overlapping digits taken apart, as in the paper's figure 5."""

from old.errors import UserError
from visualisation.drawing import right_beside_wrong_png, to_rgb, two_colours

# Examples classified right, and as many classified wrong.
NUM_EXAMPLES = 5


def absent_class(example):
    """The class with the longest capsule that is no label and not predicted.

    If the network sees anything that is not there, it is this class.

    Args:
      example: `Example`.

    Raises:
      UserError: if there is no other class.
    """
    present = {*example.labels, *example.predictions}
    for label in example.ranking:
        if label not in present:
            return label
    raise UserError(
        "the figure multimnist needs a class that an image does not show: "
        f"all {len(example.ranking)} are labels or predicted"
    )


def panels(subject, example):
    """All images that one column shows.

    Args:
      subject: `TrainedModel`.
      example: `Example` of two targets.

    Returns:
      Dict from row label to RGB image [H, W, 3], or None for an empty place:
      remakes of predictions are for wrong ones.
    """
    absent = absent_class(example)
    of_labels = subject.redraw_example(example, example.labels)
    of_predictions = None
    if not example.is_right:
        of_predictions = two_colours(
            *subject.redraw_example(example, example.predictions)
        )
    (of_absent,) = subject.redraw_example(example, [absent])
    return {
        "input": to_rgb(example.image),
        "targets": two_colours(*example.targets),
        "remakes of\nlabels": two_colours(*of_labels),
        "remakes of\npredictions": of_predictions,
        "label 1 and\na class that\nis not there": two_colours(
            of_labels[0], of_absent
        ),
    }


def make(subject, num_examples=NUM_EXAMPLES):
    """The figure, right predictions on the left and wrong ones on the right.

    Args:
      subject: `TrainedModel`.
      num_examples: int, right ones and as many wrong ones, if there are.

    Returns:
      Dict from file name to the bytes of a PNG file.

    Raises:
      UserError: if the network has no decoder, images show one object, or
        there are too few classes.
    """
    subject.require_decoder()
    if subject.num_targets != 2:
        raise UserError(
            "the figure multimnist shows two digits in an image: it needs a "
            "checkpoint trained with --num_targets=2"
        )
    right, wrong = subject.right_and_wrong(num_examples)
    examples = right + wrong
    return {
        "multimnist.png": right_beside_wrong_png(
            [panels(subject, example) for example in examples],
            f"Two digits in one image: {subject.name}\n"
            "First class in magenta, second in green",
            [
                {
                    **subject.verdict(example),
                    "not there": subject.names_of([absent_class(example)]),
                }
                for example in examples
            ],
            len(right),
        )
    }
