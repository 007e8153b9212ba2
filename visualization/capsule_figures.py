"""Figures of a trained capsule network.

Each figure's function takes a `TrainedModel` and a number of examples, returns
a dict from file name to content, and raises UserError for unsuitable models.
"""

import itertools

import keras
import numpy as np
from matplotlib.colors import CenteredNorm
from matplotlib.figure import Figure
from scipy.special import entr

from common.errors import UserError
from config import EVAL_BATCH_SIZE
from visualization import drawing
from visualization.drawing import image_grid, png, to_rgb
from visualization.trained_model import covered_part, two_colors

OFFSETS = np.arange(-5, 6) * 0.05  # -0.25 to 0.25


def reconstructions(trained, num_examples):
    """Inputs and reconstructions, as in the paper's figure 3.

    Shows correct predictions, then wrong ones, up to `num_examples` of each.
    """
    text = "Reconstructions", "true, predicted"
    picture = _draw_columns(trained, num_examples, reconstruction_column, *text)
    return {"reconstructions.png": picture}


def reconstruction_column(trained, example):
    """The classes to write above a column, and a dict from row label to image.

    Reconstructions of right predictions are None.
    """
    rows, numbers = {"input": example.image}, [""]
    if len(example.labels) == 2:  # one target is the input itself
        rows["target 1"], rows["target 2"] = example.targets
        numbers = [" 1", " 2"]
    classes = {"": example.labels, " of\nprediction": example.predictions}
    for kind, labels in classes.items():
        images = [None, None]
        if kind == "" or not example.is_right:
            images = trained.reconstruct(example.capsules[labels], labels)
        for number, image in zip(numbers, images, strict=False):
            rows[f"reconstruction{kind}{number}"] = image
    return classes.values(), rows


def multimnist(trained, num_examples):
    """Reconstructions of overlapping digits, as in the paper's figure 5."""
    spec = trained.pipeline.spec
    # Two labels, two wrong predictions and an absent class.
    if spec.num_targets != 2 or spec.shape.num_classes < 5:
        raise UserError(
            "the figure multimnist needs a checkpoint with --num_targets=2 "
            "and at least 5 classes"
        )
    title = "Two digits, the first in magenta, the second in green"
    text = title, "true, predicted and absent"
    picture = _draw_columns(trained, num_examples, multimnist_column, *text)
    return {"multimnist.png": picture}


def multimnist_column(trained, example):
    """Like `reconstruction_column`; an image shows two digits in two colors."""
    labels, predictions = example.labels, example.predictions
    # The longest capsule of the classes that are neither label nor predicted.
    absent = next(c for c in example.ranking if c not in labels + predictions)
    classes = [*labels, *predictions, absent]
    images = trained.reconstruct(example.capsules[classes], classes)
    return [labels, predictions, [absent]], {
        "input": example.image,
        "targets": two_colors(*example.targets),
        "reconstructions\nof labels": two_colors(*images[:2]),
        "reconstructions\nof predictions": (
            None if example.is_right else two_colors(*images[2:4])
        ),
        "label 1 and\nabsent class": two_colors(images[0], images[4]),
    }


def _draw_columns(trained, num_examples, make_column, title, classes):
    right = trained.first(num_examples, is_right=True)
    wrong = trained.first(num_examples, is_right=False)
    columns = [make_column(trained, example) for example in right + wrong]
    texts, rows = zip(*columns, strict=True)
    images = [row[label] for label in rows[0] for row in rows]
    title = (
        f"{title}: {trained.name}\n"
        f"Above each input: {classes} class; wrong predictions in red"
    )
    titles = ["\n".join(map(trained.class_text, shown)) for shown in texts]
    red = range(len(right), len(rows))
    return image_grid(images, len(rows), title, titles, [*rows[0]], red)


def perturbations(trained, num_examples):
    """Changes each dimension of a class capsule, as in the paper's figure 4.

    Each of up to `num_examples` classes has a picture of the first correctly
    predicted example whose `labels[0]` is the class.
    """
    examples = {}
    for example in trained.examples():
        if example.is_right:
            examples.setdefault(example.labels[0], example)
        if len(examples) == min(num_examples, len(example.lengths)):
            break
    files = {}
    for label, example in sorted(examples.items()):
        capsule = example.capsules[label]
        moves = np.eye(len(capsule))[:, None] * OFFSETS[:, None]  # [A, K, A]
        capsules = (capsule + moves).reshape(-1, len(capsule))
        files[f"perturbations_{label}.png"] = image_grid(
            trained.reconstruct(capsules, [label] * len(capsules)),
            len(OFFSETS),
            f"Capsule of class {trained.class_text([label])}: each dimension "
            f"moved around its value (in parentheses)\n{trained.name}",
            titles=[f"{offset:+.2f}" if offset else "0" for offset in OFFSETS],
            labels=[
                f"dimension {number} ({round(value, 2) + 0.0:.2f})"  # no -0.00
                for number, value in enumerate(capsule)
            ],
        )
    return files


def routing(trained, num_examples):
    """Couplings by position, and their entropy by iteration.

    Couplings are of the predicted classes and of the next longest capsule; the
    entropy is the mean over one evaluation batch.
    """
    examples = list(itertools.islice(trained.examples(), EVAL_BATCH_SIZE))
    images = np.stack([example.image for example in examples])
    found = trained.model.routing_of(images)
    if found is None:
        raise UserError(f"{trained.name} has no routing by agreement")
    couplings = keras.ops.convert_to_numpy(found.couplings)
    *_, num_types, num_classes = couplings.shape
    num_shares = num_classes + found.leaky
    maps = couplings.sum(axis=-2)[:, :num_examples]
    shown, equal = examples[:num_examples], num_types / num_shares
    title = f"Mean entropy of the couplings, {len(examples)} images"
    title, entropy = f"{title}\n{trained.name}", mean_entropy(couplings)
    return {
        "routing.png": _draw_maps(trained, shown, maps, equal),
        "routing_entropy.png": _draw_entropy(title, entropy, num_shares),
    }


def mean_entropy(couplings):
    """Entropy of the couplings by iteration, averaged over input capsules.

    Takes [iterations, ..., classes]. Returns float64 [iterations] in nats: 0 if
    each input capsule is coupled to one class, log(classes) if each is coupled
    equally to all. If couplings sum to less than 1, the rest is one more class.
    """
    shares = couplings.astype("float64")
    leak = np.maximum(1 - shares.sum(axis=-1), 0)
    entropy = entr(shares).sum(axis=-1) + entr(leak)
    return entropy.reshape(len(entropy), -1).mean(axis=1)


@drawing.styled
def _draw_maps(trained, examples, maps, equal):
    """Draws maps [iterations, N, h, w, classes] over the images."""
    images, labels, tiles = [], [], []
    for index, example in enumerate(examples):
        num_targets = len(example.labels)
        light = 1 - 0.8 * to_rgb(example.image)
        for place, label in enumerate(example.ranking[: num_targets + 1]):
            images += [light] * len(maps)
            tiles += [*maps[:, index, :, :, label]]
            kind = "predicted" if place < num_targets else "not predicted"
            labels.append(
                f"class {trained.class_text([label])}\n"
                f"({kind}: {example.lengths[label]:.2f})"
            )
    title = f"Couplings to class capsules, summed over types\n{trained.name}"
    titles = [f"iteration {n}" for n in range(1, len(maps) + 1)]
    figure, grid = drawing.make_grid(images, len(maps), title, titles, labels)
    figure.set_size_inches(2.5 + 1.2 * len(maps), 0.5 + 1.2 * len(labels))
    furthest = max(float(abs(maps - equal).max()), 0.01 * equal)
    norm = CenteredNorm(equal, furthest)
    size = _, width = examples[0].image.shape[:2]
    area = covered_part(trained.model, size)
    # Coordinates of pixels are those of their centers.
    top, left = area["top"] - 0.5, area["left"] - 0.5
    bottom, right = top + area["height"], left + area["width"]
    for axes, values in zip(grid.flat, tiles, strict=True):
        axes.set(frame_on=True, autoscale_on=False)
        for view in range(0, images[0].shape[1], width):
            place = left + view, right + view, bottom, top
            shown = axes.imshow(values, "RdBu_r", norm, extent=place, alpha=0.6)
    text = "sum of couplings; the line is at equal shares"
    bar = figure.colorbar(shown, ax=grid, aspect=40, format="%.3g", label=text)
    bar.set_ticks([norm.vmin, equal, norm.vmax])
    bar.ax.axhline(equal, color="black")
    return png(figure)


@drawing.styled
def _draw_entropy(title, entropy, num_shares):
    figure = Figure(figsize=(4.5, 3), layout="constrained")
    axes = figure.subplots()
    equal = {"linestyle": "--", "color": "gray", "label": "equal shares"}
    axes.axhline(np.log(num_shares), **equal)
    for point in enumerate(entropy, 1):
        axes.plot(*point, "oC0")
        place = point, (6, 6), "data", "offset points"
        axes.annotate(f"{point[1]:.4f}", *place)
    axes.set(title=title, xlabel="routing iteration", ylabel="entropy (nats)")
    axes.set_xticks(range(1, len(entropy) + 1))
    axes.ticklabel_format(axis="y", useOffset=False)
    axes.margins(0.15)
    figure.legend(frameon=False, loc="outside lower right")
    return png(figure)
