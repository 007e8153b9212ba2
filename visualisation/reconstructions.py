"""Inputs and reconstructions, as in the paper's figure 3."""

from visualisation.drawing import image_grid


def make(trained, num_examples=6):
    """Draws right predictions on the left and as many wrong on the right."""
    picture = draw(trained, num_examples, column, "Reconstructions")
    return {"reconstructions.png": picture}


def column(trained, example):
    """Dict from row label to image, or None for an empty place.

    Reconstructions come from the capsules of the labels and, for wrong
    predictions, also from those of the predicted classes.
    """
    images = {"input": example.image}
    numbers = [""] if len(example.labels) == 1 else [" 1", " 2"]
    if len(numbers) == 2:  # one target is the input itself
        images["target 1"], images["target 2"] = example.targets
    for kind, classes in (
        ("", example.labels),
        (" of\nprediction", example.predictions),
    ):
        rows = [f"reconstruction{kind}{number}" for number in numbers]
        if classes == example.predictions and example.is_right and kind:
            images |= dict.fromkeys(rows)
        else:
            drawn = trained.reconstruct(example.capsules[[*classes]], classes)
            images |= dict(zip(rows, drawn, strict=True))
    return images


def draw(trained, num_examples, make_column, title, absent_class=None):
    """Draws a column of images for each example, its classes above.

    Args:
      trained: `TrainedModel`.
      num_examples: int, right predictions, and as many wrong ones.
      make_column: function such as `column`.
      title: string.
      absent_class: function of an example: one more class to name.

    Returns:
      The bytes of a PNG file.
    """
    right, wrong = trained.right_and_wrong(num_examples)
    titles = []
    for example in right + wrong:
        classes = [example.labels, example.predictions]
        if absent_class:
            classes.append([absent_class(example)])
        titles.append("\n".join(map(trained.class_text, classes)))
    columns = [make_column(trained, example) for example in right + wrong]
    rows = {label: [c[label] for c in columns] for label in columns[0]}
    rows = {k: r for k, r in rows.items() if any(i is not None for i in r)}
    names = "true, predicted and absent" if absent_class else "true, predicted"
    return image_grid(
        list(rows.values()),
        f"{title}: {trained.name}\n"
        f"Above each input: {names} class; wrong predictions in red",
        titles,
        labels=list(rows),
        wrong=range(len(right), len(columns)),
    )
