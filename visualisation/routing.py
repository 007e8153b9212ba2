"""Coupling coefficients by position, and their entropy by iteration."""

import itertools

import keras
import matplotlib
import numpy as np
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure

from common.errors import UserError
from visualisation.drawing import STYLE, png, to_rgb
from visualisation.trained_model import BATCH_SIZE

# Examples with heat maps; the entropy is a mean over one batch.
NUM_EXAMPLES = 4


def make(trained, num_examples=NUM_EXAMPLES):
    """Draws couplings of a few examples, and the mean entropy over a batch.

    Couplings are those to the predicted classes and to the class with the
    longest capsule of the others.

    Args:
      trained: `TrainedModel`.
      num_examples: int, examples with heat maps, at most `BATCH_SIZE`.

    Returns:
      Dict from file name to the bytes of a PNG file.

    Raises:
      UserError: if the network has no routing.
    """
    examples = list(itertools.islice(trained.examples(), BATCH_SIZE))
    images = np.stack([example.image for example in examples])
    couplings, is_leaky = couplings_of(trained, images)
    *_, num_types, num_classes = couplings.shape
    num_shares = num_classes + is_leaky
    return {
        "routing.png": _draw_maps(
            trained,
            examples[:num_examples],
            by_position(couplings),
            num_types / num_shares,
        ),
        "routing_entropy.png": _draw_entropy(
            f"Mean entropy of the couplings, {len(examples)} images\n"
            f"{trained.name}",
            mean_entropy(couplings, is_leaky),
            np.log(num_shares),
        ),
    }


def couplings_of(trained, images):
    """Coupling coefficients of every routing iteration.

    Args:
      trained: `TrainedModel`.
      images: float32 [N, H, W, C].

    Returns:
      Pair of a float32 array [iterations, N, h, w, types, classes], and bool,
      whether they may sum to less than 1.

    Raises:
      UserError: if the network has no routing.
    """
    routing = trained.model.routing_of(images)
    if routing is None:
        raise UserError(f"{trained.name} has no routing by agreement")
    return keras.ops.convert_to_numpy(routing.couplings), routing.leaky


def by_position(couplings):
    """Sums couplings [..., h, w, types, classes] over the capsule types."""
    return couplings.sum(axis=-2)


def map_of(receptive_field, size):
    """The part of an image that a map of couplings covers.

    Each value covers as many pixels as there are from one position to the
    next, around the center of its capsules' receptive field.

    Args:
      receptive_field: as of `models.classifier.Routing`.
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
        shares = np.concatenate([shares, leak], axis=-1)
    # x log x is 0 at 0; rounding may leave a leak below it.
    shares = np.maximum(shares, np.finfo("float64").tiny)
    entropy = -(shares * np.log(shares)).sum(axis=-1)
    return entropy.reshape(len(entropy), -1).mean(axis=1)


def shown_classes(example):
    """List of (class, text): the predicted classes, and the next one."""
    count = len(example.labels)
    texts = ["predicted"] * count + ["not predicted"]
    return list(zip(example.ranking, texts, strict=False))


def _draw_maps(trained, examples, maps, equal):
    """Draws a row of heat maps for each example and class.

    Args:
      trained: `TrainedModel`.
      examples: list of `Example`s.
      maps: float array [iterations, N, h, w, classes].
      equal: float, the value if all classes have equal shares: white.
    """
    maps = maps[:, : len(examples)]
    norm = TwoSlopeNorm(
        equal,
        vmin=min(float(maps.min()), 0.99 * equal),
        vmax=max(float(maps.max()), 1.01 * equal),
    )
    rows = [
        (index, example, *shown)
        for index, example in enumerate(examples)
        for shown in shown_classes(example)
    ]
    titles = [f"iteration {number}" for number in range(1, len(maps) + 1)]
    size = 1.3 * (len(maps) + 1) + 1.6, 1.25 * len(rows) + 0.8
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=size, layout="constrained")
        figure.suptitle(
            "Coupling coefficients to class capsules, summed over the types "
            f"below\n{trained.name}"
        )
        grid = figure.subplots(
            *(len(rows), len(titles) + 1),
            squeeze=False,
            subplot_kw={"xticks": [], "yticks": []},
        )
        for axes, title in zip(grid[0], ["input", *titles], strict=True):
            axes.set_title(title)
        for axes, (index, example, label, text) in zip(grid, rows, strict=True):
            axes[0].imshow(to_rgb(example.image))
            axes[0].set_ylabel(
                f"class {trained.class_text([label])}\n"
                f"({text}: {example.lengths[label]:.2f})"
            )
            for column, values in zip(axes[1:], maps, strict=True):
                heat = column.imshow(
                    values[index, :, :, label], norm=norm, cmap="RdBu_r"
                )
        figure.colorbar(
            heat,
            ax=grid,
            label="sum of couplings",
            shrink=0.5,
            ticks=[norm.vmin, equal, norm.vmax],
            format="%.3g",
        )
        return png(figure)


def _draw_entropy(title, entropy, equal):
    iterations = range(1, len(entropy) + 1)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(4.5, 3), layout="constrained")
        axes = figure.subplots()
        axes.plot(iterations, entropy, marker="o")
        for iteration, value in zip(iterations, entropy, strict=True):
            axes.annotate(
                f"{value:.4f}",
                (iteration, value),
                xytext=(0, 6),
                textcoords="offset points",
                horizontalalignment="center",
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
            )
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
