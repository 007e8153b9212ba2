"""Input and remake of examples, as in the paper's figure 3."""

from visualisation.drawing import right_beside_wrong_png, to_rgb

# Examples classified right, and as many classified wrong.
NUM_EXAMPLES = 6


def panels(subject, example):
    """All images that one column shows.

    The remakes are drawn from the capsules of the labels, as in training, and
    for a wrong prediction also from those of the predicted classes. Two
    targets are shown, too; one is the input itself.

    Args:
      subject: `TrainedModel`.
      example: `Example`.

    Returns:
      Dict from row label to image [H, W, C], or None for an empty place.
    """
    number = [""] if len(example.labels) == 1 else [" 1", " 2"]
    of_labels = subject.redraw_example(example, example.labels)
    of_predictions = [None] * len(number)
    if not example.is_right:
        of_predictions = subject.redraw_example(example, example.predictions)
    images = {"input": example.image}
    for which, target, remake in zip(
        number, example.targets, of_labels, strict=True
    ):
        if which:
            images[f"target{which}"] = target
        images[f"remake{which}"] = remake
    for which, remake in zip(number, of_predictions, strict=True):
        images[f"remake of\nprediction{which}"] = remake
    return images


def make(subject, num_examples=NUM_EXAMPLES):
    """The figure, right predictions on the left and wrong ones on the right.

    Args:
      subject: `TrainedModel`.
      num_examples: int, right ones and as many wrong ones, if there are.

    Returns:
      Dict from file name to the bytes of a PNG file.

    Raises:
      UserError: if the network has no decoder.
    """
    subject.require_decoder()
    right, wrong = subject.right_and_wrong(num_examples)
    examples = right + wrong
    return {
        "reconstructions.png": right_beside_wrong_png(
            [_shown(panels(subject, example)) for example in examples],
            f"Reconstructions: {subject.name}\n"
            f"{len(right)} right and {len(wrong)} wrong predictions",
            [subject.verdict(example) for example in examples],
            len(right),
        )
    }


def _shown(images):
    return {
        label: None if image is None else to_rgb(image)
        for label, image in images.items()
    }
