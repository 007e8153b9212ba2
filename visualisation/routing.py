"""Where the routing goes: couplings by position, and their entropy."""

import itertools

import keras
import matplotlib
import numpy as np
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure

from layers.utils import positions_of, zeros_around
from old.errors import UserError
from training.config import EVAL_BATCH_SIZE
from visualisation.drawing import STYLE, png, to_rgb

# Examples with heat maps; the entropy is a mean over one batch.
NUM_EXAMPLES = 4


def couplings_of(subject, images):
    """Coupling coefficients of every routing iteration.

    Args:
      subject: `TrainedModel`.
      images: float32 [N, H, W, C].

    Returns:
      Pair of a float32 array [iterations, N, h, w, types, classes], and bool,
      whether they may sum to less than 1.

    Raises:
      UserError: if the network does not route.
    """
    routing = subject.model.routing_of(images)
    if routing is None:
        raise UserError(
            f"{subject.name} has no routing by agreement for the figure routing"
        )
    return keras.ops.convert_to_numpy(routing.couplings), routing.leaky


def by_position(couplings):
    """Couplings of a position to each class: the sum over capsule types.

    Args:
      couplings: array [..., h, w, types, classes].

    Returns:
      Array [..., h, w, classes]. Over the classes it sums to the number of
      types, or to less if the routing is leaky.
    """
    return couplings.sum(axis=-2)


def map_of(receptive_field, size):
    """The part of an image on which a map of couplings stands.

    Each value covers as many pixels as there are from one position to the
    next, around the middle of what its capsules see.

    Args:
      receptive_field: as of `models.classifier.Routing`.
      size: (height, width) of the image, in pixels.

    Returns:
      Top, left, height and width in pixels, floats.
    """
    if not receptive_field:
        return 0.0, 0.0, *map(float, size)
    grid, step = size, 1
    first = np.full(2, 0.5)  # the middle of the first position
    for side, strides, padding in receptive_field:
        axes = [(n, side, strides, padding) for n in grid]
        before = np.array([zeros_around(*axis)[0] for axis in axes])
        first += step * ((side - 1) / 2 - before)
        step *= strides
        grid = [positions_of(*axis) for axis in axes]
    return *(first - step / 2).tolist(), *(float(step * n) for n in grid)


def mean_entropy(couplings, leaky):
    """Mean entropy of the couplings of an input capsule, by iteration.

    It is log(classes) where a capsule is shared equally among the classes,
    and 0 where all of it goes to one.

    Args:
      couplings: array [iterations, ..., classes].
      leaky: bool, whether they may sum to less than 1; the share that leaks
        then counts as one more class.

    Returns:
      float64 array [iterations], in nats.
    """
    shares = couplings.astype("float64")
    if leaky:
        leak = 1 - shares.sum(axis=-1, keepdims=True)
        shares = np.concatenate([shares, leak], axis=-1)
    # x log x is 0 at 0; rounding may leave a leak just below it.
    shares = np.maximum(shares, np.finfo("float64").tiny)
    entropy = -(shares * np.log(shares)).sum(axis=-1)
    return entropy.reshape(len(entropy), -1).mean(axis=1)


def make(subject, num_examples=NUM_EXAMPLES):
    """Heat maps of a few examples, and the entropy over a batch of them.

    The heat maps are those of the predicted classes and of the class with the
    longest capsule among the others.

    Args:
      subject: `TrainedModel`.
      num_examples: int, how many have heat maps.

    Returns:
      Dict from file name to the bytes of a PNG file.

    Raises:
      UserError: for more examples than a batch has, or a network that does
        not route.
    """
    if num_examples > EVAL_BATCH_SIZE:
        raise UserError(
            f"the figure routing shows at most {EVAL_BATCH_SIZE} examples: "
            f"--num_examples={num_examples} is too much"
        )
    examples = list(itertools.islice(subject.examples(), EVAL_BATCH_SIZE))
    couplings, leaky = couplings_of(
        subject, np.stack([example.image for example in examples])
    )
    *_, num_types, num_classes = couplings.shape
    shares = num_classes + leaky
    return {
        "routing.png": _draw_maps(
            subject,
            examples[:num_examples],
            by_position(couplings[:, :num_examples]),
            num_types / shares,
        ),
        "routing_entropy.png": _draw_entropy(
            subject, mean_entropy(couplings, leaky), shares, len(examples)
        ),
    }


def shown_classes(example):
    """Classes with heat maps, and what each is: list of (class, string)."""
    count = len(example.labels)
    return [
        *((label, "predicted") for label in example.ranking[:count]),
        *((label, "not predicted") for label in example.ranking[count:][:1]),
    ]


def _draw_maps(subject, examples, maps, equal):
    """Rows for the classes of each; maps: [iterations, N, h, w, classes].

    White is `equal`, what each class has where all have the same.
    """
    iterations = len(maps)
    rows = [
        (number, example, *shown)
        for number, example in enumerate(examples)
        for shown in shown_classes(example)
    ]
    # Sums are not negative, so that the colours end nearer on that side.
    norm = TwoSlopeNorm(
        equal,
        vmin=min(float(maps.min()), 0.99 * equal),
        vmax=max(float(maps.max()), 1.01 * equal),
    )
    scale = {"norm": norm, "cmap": "RdBu_r"}
    with matplotlib.rc_context(STYLE):
        figure = Figure(
            figsize=(1.3 * (iterations + 1) + 1.6, 1.25 * len(rows) + 0.8),
            layout="constrained",
        )
        figure.suptitle(
            "Coupling coefficients to class capsules, summed over the types "
            f"below\n{subject.name}"
        )
        grid = figure.subplots(len(rows), iterations + 1, squeeze=False)
        for axes, row in zip(grid, rows, strict=True):
            number, example, label, text = row
            axes[0].imshow(to_rgb(example.image))
            axes[0].set_ylabel(
                f"class {subject.names_of([label])}\n"
                f"({text}: {example.lengths[label]:.2f})"
            )
            for iteration in range(iterations):
                heat = axes[iteration + 1].imshow(
                    maps[iteration, number, :, :, label], **scale
                )
        for axes in grid.flat:
            axes.set_xticks([])
            axes.set_yticks([])
        grid[0, 0].set_title("input")
        for iteration in range(iterations):
            grid[0, iteration + 1].set_title(f"iteration {iteration + 1}")
        figure.colorbar(
            heat,
            ax=grid,
            label="sum of couplings",
            shrink=0.5,
            ticks=[norm.vmin, equal, norm.vmax],
            format="%.3g",
        )
        return png(figure)


def _draw_entropy(subject, entropy, shares, num_examples):
    iterations = np.arange(1, len(entropy) + 1)
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
                # The line goes down to the next point, under its number.
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
            )
        axes.axhline(
            np.log(shares), linestyle="--", color="grey", label="equal shares"
        )
        axes.set_title(
            f"Mean entropy of the couplings, {num_examples} images\n"
            f"{subject.name}"
        )
        axes.set_xlabel("routing iteration")
        axes.set_ylabel("entropy (nats)")
        # Numbers that differ little are written in full all the same.
        axes.ticklabel_format(useOffset=False)
        axes.set_xticks(iterations)
        axes.margins(0.15)
        axes.legend()
        return png(figure)
