"""Inputs and reconstructions, as in the paper's figure 3."""

from visualisation.drawing import image_grid

# Right examples, and as many wrong ones.
NUM_EXAMPLES = 6


def make(trained, num_examples=NUM_EXAMPLES):
    """Draws right examples on the left and wrong ones on the right.

    Args:
      trained: `TrainedModel`.
      num_examples: int, right examples, and as many wrong ones.

    Returns:
      Dict from file name to the bytes of a PNG file.

    Raises:
      UserError: if the network has no decoder.
    """
    trained.require_decoder()
    right, wrong = trained.right_and_wrong(num_examples)
    title = (
        f"Reconstructions: {trained.name}\n"
        f"{len(right)} right and {len(wrong)} wrong predictions"
    )
    return {"reconstructions.png": draw(trained, right, wrong, panels, title)}


def panels(trained, example):
    """The images of one column.

    Reconstructions come from the capsules of the labels and, for wrong
    predictions, also from those of the predicted classes.

    Returns:
      Dict from row label to image [H, W, C], or None for an empty place.
    """
    numbers = [""] if len(example.labels) == 1 else [" 1", " 2"]
    by_label = trained.reconstruct_example(example, example.labels)
    by_prediction = [None] * len(numbers)
    if not example.is_right:
        by_prediction = trained.reconstruct_example(
            example, example.predictions
        )
    images = {"input": example.image}
    for index, number in enumerate(numbers):
        if number:  # one target is the input itself
            images[f"target{number}"] = example.targets[index]
        images[f"reconstruction{number}"] = by_label[index]
    for index, number in enumerate(numbers):
        images[f"reconstruction of\nprediction{number}"] = by_prediction[index]
    return images


def draw(trained, right, wrong, make_column, title, absent_class=None):
    """Draws a column of images for each example, its classes above.

    Args:
      trained: `TrainedModel`.
      right, wrong: lists of `Example`s.
      make_column: function such as `panels`.
      title: string.
      absent_class: function of an example: one more class to name.

    Returns:
      The bytes of a PNG file.
    """
    examples = right + wrong
    headings = []
    for example in examples:
        classes = [example.labels, example.predictions]
        if absent_class:
            classes.append([absent_class(example)])
        headings.append("\n".join(map(trained.class_text, classes)))
    return image_grid(
        [make_column(trained, example) for example in examples],
        headings,
        title,
        "true\npredicted" + "\nabsent" * bool(absent_class),
        wrong=range(len(right), len(examples)),
    )
