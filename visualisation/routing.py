"""Where the routing goes: couplings by position, and their entropy."""

import itertools

import keras
import matplotlib
import numpy as np
from matplotlib.figure import Figure

from common.errors import UserError
from training.config import EVAL_BATCH_SIZE
from visualisation.drawing import png, to_rgb

# Examples with heat maps; the entropy is a mean over one batch.
NUM_EXAMPLES = 4


def couplings_of(subject, images):
    """Coupling coefficients of every routing iteration.

    Args:
      subject: `Subject`.
      images: float32 [N, H, W, C].

    Returns:
      float32 array [iterations, N, h, w, types, classes].
    """
    return keras.ops.convert_to_numpy(subject.model.couplings(images))


def by_position(couplings):
    """Couplings of a position to each class: the sum over capsule types.

    Args:
      couplings: array [..., h, w, types, classes].

    Returns:
      Array [..., h, w, classes]. Over the classes it sums to the number of
      types, or to less if the routing is leaky.
    """
    return couplings.sum(axis=-2)


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

    The heat maps are those of the predicted class and of the class with the
    longest capsule among the others.

    Args:
      subject: `Subject`.
      num_examples: int, how many have heat maps.

    Returns:
      Dict from file name to the bytes of a PNG file.

    Raises:
      UserError: for more examples than a batch has.
    """
    if num_examples > EVAL_BATCH_SIZE:
        raise UserError(
            f"the figure routing shows at most {EVAL_BATCH_SIZE} examples: "
            f"--num_examples={num_examples} is too much"
        )
    examples = list(itertools.islice(subject.examples(), EVAL_BATCH_SIZE))
    couplings = couplings_of(
        subject, np.stack([example.image for example in examples])
    )
    return {
        "routing.png": _draw_maps(
            subject,
            examples[:num_examples],
            by_position(couplings[:, :num_examples]),
        ),
        "routing_entropy.png": _draw_entropy(
            subject,
            mean_entropy(couplings, subject.model.capsule2.leaky),
            len(examples),
        ),
    }


def _draw_maps(subject, examples, maps):
    """Two rows for each example; maps: [iterations, N, h, w, classes]."""
    iterations = len(maps)
    # White is the equal share of the first iteration.
    equal = float(maps[0].flat[0])
    reach = max(float(np.abs(maps - equal).max()), 0.01 * equal)
    scale = {"vmin": equal - reach, "vmax": equal + reach, "cmap": "RdBu_r"}
    with matplotlib.rc_context({"font.size": 8}):
        figure = Figure(
            figsize=(1.3 * (iterations + 1) + 1.6, 2.5 * len(examples) + 0.8),
            layout="constrained",
        )
        figure.suptitle(
            "Coupling coefficients of the primary capsules, summed over their "
            f"types\n{subject.name}",
            fontsize=10,
        )
        grid = figure.subplots(2 * len(examples), iterations + 1, squeeze=False)
        for number, example in enumerate(examples):
            predicted = example.ranking[0]
            other = example.ranking[subject.num_targets]
            for row, (label, text) in enumerate(
                [(predicted, "predicted"), (other, "not predicted")]
            ):
                axes = grid[2 * number + row]
                axes[0].imshow(to_rgb(example.image))
                axes[0].set_ylabel(
                    f"class {label}\n({text})\n"
                    f"length {example.lengths[label]:.2f}"
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
        figure.colorbar(heat, ax=grid, label="sum of couplings", shrink=0.5)
        return png(figure)


def _draw_entropy(subject, entropy, num_examples):
    shares = subject.model.capsule2.num_capsules + subject.model.capsule2.leaky
    iterations = np.arange(1, len(entropy) + 1)
    with matplotlib.rc_context({"font.size": 8}):
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
            f"{subject.name}",
            fontsize=9,
        )
        axes.set_xlabel("routing iteration")
        axes.set_ylabel("entropy (nats)")
        axes.set_xticks(iterations)
        axes.margins(0.15)
        axes.legend()
        return png(figure)
