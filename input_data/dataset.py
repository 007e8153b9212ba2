"""What a data set can: each says so in its own file."""

import dataclasses
from collections.abc import Callable


@dataclasses.dataclass(frozen=True)
class DataSet:
    """How a data set is loaded, and which options apply to it.

    Attributes:
      load: function of a `Split` and `Options` that returns a `Pipeline`.
      two_targets: bool, whether two of its images can overlap: photographs
        have no black background, and affNIST's digits take up all of it.
      resizes: bool, whether `image_size` applies.
      colors: bool, whether `color` applies.
      photograph_size: (height, width) of the photographs whose middle a
        network of this data set sees, standardised; None if it sees whole
        images with pixels in [0, 1], to which `shift`, `pad`, `distort` and
        `augment` apply.
      centred: bool, whether its images are single digits in white on black,
        so that a drawn one is brought to MNIST's size and place, see
        `transforms.centring`.
    """

    load: Callable
    two_targets: bool = True
    resizes: bool = False
    colors: bool = False
    photograph_size: tuple[int, int] | None = None
    centred: bool = False
