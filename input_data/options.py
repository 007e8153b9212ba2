"""What a data set is asked for: imports nothing heavy."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Options:
    """What a data set is asked for beside its split.

    Attributes:
      data_dir: path of its files, or None.
      dataset: its name, or None for the default.
      num_targets: int, objects in each image: 1 or 2; None for 1.
      seed: int, fixes what is drawn for evaluation.
      eval_size: int, how many examples to evaluate, at most.
      image_size: int, the height and width to which images of any size are
        resized, or None.
      color: bool, whether images of any kind keep their colours.
      shift: int, pixels that a training image moves at most along each axis;
        None for the default: 2 for digits and mnist, with two targets 4, else
        0.
      pad: int, black pixels added on each side; None for the default, 0, or
        with two targets 4.
      distort: bool, whether digits are cropped, and turned in training.
    """

    data_dir: str | None = None
    dataset: str | None = None
    num_targets: int | None = None
    seed: int = 0
    eval_size: int = 10000
    image_size: int | None = None
    color: bool = False
    shift: int | None = None
    pad: int | None = None
    distort: bool = False
