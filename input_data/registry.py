"""Data sets by the name that `--dataset` takes."""

import dataclasses

from errors import UserError
from input_data.digits import digits
from input_data.mnist import mnist

# Each function takes (split, options) and returns a Pipeline.
DATASETS = {"digits": digits.load, "mnist": mnist.load}
# Those that `shift`, `pad` and `distort` apply to.
_OF_DIGITS = {"digits", "mnist"}


@dataclasses.dataclass(frozen=True)
class Options:
    """What a data set is asked for beside its split.

    Attributes:
      data_dir: path of its files, or None.
      num_targets: int, objects in each image: 1 or 2.
      seed: int, fixes what is drawn for evaluation.
      eval_size: int, how many examples to evaluate, at most.
      shift: int, pixels that a training digit moves at most along each axis;
        None for the default, 2, or with two targets 4.
      pad: int, black pixels added on each side; None for the default, 0, or
        with two targets 4.
      distort: bool, whether digits are cropped, and turned in training.
    """

    data_dir: str | None = None
    num_targets: int = 1
    seed: int = 0
    eval_size: int = 10000
    shift: int | None = None
    pad: int | None = None
    distort: bool = False


def load(name, split, options):
    """The pipeline of one split of a data set.

    Args:
      name: string, a key of `DATASETS`.
      split: `splits.Split`.
      options: `Options`.

    Returns:
      `pipeline.Pipeline`.

    Raises:
      UserError: for an unknown name, a number of targets that is not 1 or 2,
        or files that are missing or damaged.
    """
    if name not in DATASETS:
        raise UserError(
            f"unknown data set {name!r}; valid names: "
            f"{', '.join(sorted(DATASETS))}"
        )
    if options.num_targets not in (1, 2):
        raise UserError(f"--num_targets={options.num_targets} must be 1 or 2")
    if name not in _OF_DIGITS:
        for flag in ("shift", "pad", "distort"):
            if getattr(options, flag) != getattr(Options, flag):
                raise UserError(
                    f"--{flag} does not apply to --dataset={name}, only to "
                    f"{', '.join(sorted(_OF_DIGITS))}"
                )
    return DATASETS[name](split, options)
