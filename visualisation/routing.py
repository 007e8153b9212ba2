"""Coupling coefficients by position, and their entropy by iteration."""

import itertools

import keras
import matplotlib
import numpy as np
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure
from scipy.special import entr

from common.errors import UserError
from visualisation.drawing import STYLE, image_grid, png
from visualisation.trained_model import BATCH_SIZE


def make(trained, num_examples=4):
    """Draws couplings of a few examples, and the mean entropy over a batch.

    Couplings are those to the predicted classes and to the class with the
    longest capsule of the others.
    """
    examples = list(itertools.islice(trained.examples(), BATCH_SIZE))
    images = np.stack([example.image for example in examples])
    routing = trained.model.routing_of(images)
    if routing is None:
        raise UserError(f"{trained.name} has no routing by agreement")
    couplings = keras.ops.convert_to_numpy(routing.couplings)
    *_, num_types, num_classes = couplings.shape
    num_shares = num_classes + routing.leaky
    maps = by_position(couplings)[:, :num_examples]
    return {
        "routing.png": _draw_maps(
            trained, examples[:num_examples], maps, num_types / num_shares
        ),
        "routing_entropy.png": _draw_entropy(
            f"Mean entropy of the couplings, {len(examples)} images\n"
            f"{trained.name}",
            mean_entropy(couplings, routing.leaky),
            np.log(num_shares),
        ),
    }


def by_position(couplings):
    """Sums couplings [..., h, w, types, classes] over the capsule types."""
    return couplings.sum(axis=-2)


def map_of(receptive_field, size):
    """The part of an image that a map of couplings covers.

    Each value covers as many pixels as there are from one position to the
    next, around the center of its capsules' receptive field.

    Args:
      receptive_field: see `models.classifier.Classifier`.
      size: (height, width) of the image, in pixels.

    Returns:
      Top, left, height and width in pixels, floats.
    """
    if not receptive_field:
        return 0.0, 0.0, *map(float, size)
    grid, step = np.array(size), 1
    first = np.full(2, 0.5)  # the center of the first position
    for kernel, strides, padding in receptive_field:
        before, positions = 0, -(-(grid - kernel + 1) // strides)
        if padding.upper() == "SAME":
            positions = -(-grid // strides)
            covered = (positions - 1) * strides + kernel
            before = np.maximum(covered - grid, 0) // 2
        first += step * ((kernel - 1) / 2 - before)
        step *= strides
        grid = positions
    return *(first - step / 2).tolist(), *(float(step) * grid).tolist()


def mean_entropy(couplings, is_leaky):
    """Mean entropy of the couplings of an input capsule, by iteration.

    It is log(classes) where a capsule is shared equally among the classes,
    and 0 where all of it goes to one.

    Args:
      couplings: array [iterations, ..., classes].
      is_leaky: bool, whether they may sum to less than 1; the rest then counts
        as one more class.

    Returns:
      float64 array [iterations], in nats.
    """
    shares = couplings.astype("float64")
    if is_leaky:
        leak = 1 - shares.sum(axis=-1, keepdims=True)
        shares = np.concatenate([shares, np.maximum(leak, 0)], axis=-1)
    entropy = entr(shares).sum(axis=-1)
    return entropy.reshape(len(entropy), -1).mean(axis=1)


def shown_classes(example):
    """List of (class, text): the predicted classes, and the next one."""
    count = len(example.labels)
    texts = ["predicted"] * count + ["not predicted"]
    return list(zip(example.ranking, texts, strict=False))


def _draw_maps(trained, examples, maps, equal):
    """Draws a row of maps for each example and class.

    Args:
      trained: `TrainedModel`.
      examples: list of N `Example`s.
      maps: float array [iterations, N, h, w, classes].
      equal: float, the value if all classes have equal shares: white.
    """
    lowest = min(float(maps.min()), 0.99 * equal)
    highest = max(float(maps.max()), 1.01 * equal)
    # Blue is less than equal shares, red more.
    norm = TwoSlopeNorm(equal, lowest, highest)
    colors = matplotlib.colormaps["RdBu_r"](norm(maps))[..., :3]
    rows, labels = [], []
    for index, example in enumerate(examples):
        for label, text in shown_classes(example):
            rows.append([example.image, *colors[:, index, :, :, label]])
            labels.append(
                f"class {trained.class_text([label])}\n"
                f"({text}: {example.lengths[label]:.2f})"
            )
    return image_grid(
        rows,
        f"Couplings to class capsules, summed over the types below\nblue "
        f"{lowest:.3g}, white {equal:.3g} (equal shares), red {highest:.3g}\n"
        f"{trained.name}",
        ["input", *(f"iteration {n}" for n in range(1, len(maps) + 1))],
        labels,
    )


def _draw_entropy(title, entropy, equal):
    iterations = range(1, len(entropy) + 1)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(4.5, 3), layout="constrained")
        axes = figure.subplots()
        axes.plot(iterations, entropy, marker="o")
        axes.axhline(equal, linestyle="--", color="gray", label="equal shares")
        axes.set(
            title=title,
            xlabel="routing iteration",
            ylabel="entropy (nats)",
            xticks=iterations,
        )
        axes.ticklabel_format(axis="y", useOffset=False)
        axes.margins(0.15)
        axes.legend()
        return png(figure)
