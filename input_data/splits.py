"""The four splits, and which training images validation holds out."""

import enum

from common.errors import UserError

# The reference's number for MNIST and CIFAR-10.
MAX_HELD_OUT = 10000


class Split(enum.Enum):
    """Named as in the reference's mnist_shift."""

    TRAIN = "train"
    TEST = "test"
    VALID_TRAIN = "valid_train"
    VALID_TEST = "valid_test"

    @property
    def is_training(self):
        """Whether training steps use the split."""
        return self in (Split.TRAIN, Split.VALID_TRAIN)

    @property
    def is_held_out(self):
        """Whether the split is a part of the training images."""
        return self in (Split.VALID_TRAIN, Split.VALID_TEST)


def select(split, images, num_held_out=None):
    """The part of the training or the test images that belongs to a split.

    Args:
      split: `Split`.
      images: sequence, the test images for TEST, else the training images.
      num_held_out: int, how many training images validation holds out, the
        last ones. By default a fifth, from 1 to 10,000.

    Raises:
      UserError: if no training image is left.
    """
    if not split.is_held_out:
        return images
    count = num_held_out or min(MAX_HELD_OUT, max(1, len(images) // 5))
    if count >= len(images):
        raise UserError(
            f"--validate holds out {count} training images, but there are "
            f"only {len(images)}"
        )
    return images[:-count] if split.is_training else images[-count:]
