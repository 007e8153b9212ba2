"""Whether a data set fits in memory."""

import math
import os

from common.errors import UserError

# The rest is for the network, its gradients and the program.
_SHARE_FOR_DATA = 0.5
# Of images in memory: what is read is copied to where TensorFlow keeps it.
COPIES = 2


def require_memory_for_padded(count, shape, pad):
    """Refuses images that are too large once they are padded.

    Args:
      count: int, how many there are at a time, as bytes.
      shape: (height, width, depth) of the images as they are stored.
      pad: int, pixels added on each side.

    Raises:
      UserError: if they are.
    """
    height, width, depth = shape
    size = (height + 2 * pad, width + 2 * pad)
    images = f"what is computed of images of {size[0]}x{size[1]}"
    num_bytes = count * math.prod(size) * depth
    if pad:
        require_memory(num_bytes, f"{images}, by --pad={pad},", "choose less")
    require_memory(num_bytes, images)


def require_memory(
    num_bytes,
    name,
    advice="choose a smaller --image_size or another data set",
):
    """Refuses data that would take more than half of the machine's memory.

    Args:
      num_bytes: int, what the data takes.
      name: string, the data set, for the message.
      advice: string, what would take less.

    Raises:
      UserError: if it is too much.
    """
    if num_bytes > available():
        total = available() / _SHARE_FOR_DATA
        raise UserError(
            f"{name} takes {num_bytes / 1e9:.1f} GB in memory, more than half "
            f"of this machine's {total / 1e9:.1f} GB: {advice}"
        )


def available():
    """How many bytes data may take."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return int(_SHARE_FOR_DATA * total)
