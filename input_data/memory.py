"""Whether a data set fits in memory."""

import os

from errors import UserError

# The rest is for the network, its gradients and the program.
_SHARE_FOR_DATA = 0.5


def require_memory(num_bytes, name):
    """Refuses data that would take more than half of the machine's memory.

    Args:
      num_bytes: int, what the data takes.
      name: string, the data set, for the message.

    Raises:
      UserError: if it is too much.
    """
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if num_bytes > _SHARE_FOR_DATA * total:
        raise UserError(
            f"{name} takes {num_bytes / 1e9:.1f} GB in memory, more than half "
            f"of this machine's {total / 1e9:.1f} GB: choose a smaller "
            "--image_size or another data set"
        )
