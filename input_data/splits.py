"""The four splits, and how many training images validation holds out."""

import enum

from common.errors import UserError

# The reference's number for MNIST and CIFAR-10.
MAX_HELD_OUT = 10000


class Split(enum.Enum):
    """Named as the reference's mnist_shift names them."""

    TRAIN = "train"
    TEST = "test"
    VALID_TRAIN = "valid_train"
    VALID_TEST = "valid_test"

    @property
    def is_training(self):
        """Whether the split is for training steps."""
        return self in (Split.TRAIN, Split.VALID_TRAIN)

    @property
    def is_held_out(self):
        """Whether the split is a part of the training images: validation's."""
        return self in (Split.VALID_TRAIN, Split.VALID_TEST)


def default_num_held_out(num_training):
    """How many training images validation holds out: a fifth, at most 10,000.

    That is the reference's number for large sets, and leaves most of a
    smaller one. Of the smallest it is one.
    """
    return min(MAX_HELD_OUT, max(1, num_training // 5))


def select(split, images, num_held_out=None):
    """The part of the training or the test images that a split stands for.

    Args:
      split: `Split`.
      images: sequence that can be sliced: those for testing if the split is
        TEST, else those for training.
      num_held_out: int, how many of the training images, the last ones,
        validation holds out; by default `default_num_held_out`.

    Raises:
      UserError: if no image is left.
    """
    count = num_held_out or default_num_held_out(len(images))
    if split.is_held_out:
        first = split is Split.VALID_TRAIN
        images = images[:-count] if first else images[-count:]
    if not len(images):
        raise UserError(
            f"no images are left for {split.value}: validation holds out "
            f"{count}"
        )
    return images
