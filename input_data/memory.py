"""Whether a data set fits in memory."""

import contextlib
import os
import pathlib

from old.errors import UserError

# The rest is for the network, its gradients and the program.
_SHARE_FOR_DATA = 0.5
# Of images in memory: what is read, and in the graph of a pipeline twice.
COPIES = 3
# Of a container: bytes, or "max" where it has no limit.
_CONTAINER_LIMIT = pathlib.Path("/sys/fs/cgroup/memory.max")


def require_memory_for_padded(count, shape, pad, shift=0):
    """Refuses images that are too large once they are padded.

    Args:
      count: int, how many there are at a time, as bytes.
      shape: (height, width, depth) of the images as they are stored.
      pad: int, pixels added on each side.
      shift: int, pixels added besides, into which they move.

    Raises:
      UserError: if they are.
    """
    height, width, depth = shape
    padded = f"{height + 2 * pad}x{width + 2 * pad}"
    images = f"what is computed of images of {padded}"
    border = 2 * (pad + shift)
    num_bytes = count * (height + border) * (width + border) * depth
    if pad:
        require_memory(num_bytes, f"{images}, by --pad={pad},", "choose less")
    else:
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
    with contextlib.suppress(OSError, ValueError):
        total = min(total, int(_CONTAINER_LIMIT.read_text()))
    return int(_SHARE_FOR_DATA * total)
