"""The four splits, and how many training images validation holds out."""

import enum

from old.errors import UserError

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


def select(split, images, num_held_out=None):
    """The part of the training or the test images that a split stands for.

    Args:
      split: `Split`.
      images: sequence that can be sliced: those for testing if the split is
        TEST, else those for training.
      num_held_out: int, how many of the training images, the last ones,
        validation holds out; by default a fifth, at least one and at most
        10,000: the reference's number for large sets, and most of a smaller
        one is left.

    Raises:
      UserError: if no training image is left.
    """
    if not split.is_held_out:
        return images
    count = num_held_out or min(MAX_HELD_OUT, max(1, len(images) // 5))
    if count >= len(images):
        raise UserError(
            f"{count} training images are to be held out, but there are only "
            f"{len(images)}"
        )
    return images[:-count] if split.is_training else images[-count:]
