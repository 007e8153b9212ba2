"""Arrays whose shape a file's header announces."""

import math

import numpy as np

from common.errors import UserError
from input_data.memory import require_memory


def read_values(file, path, shape, dtype):
    """Reads the rest of a file: no more than its header announces.

    Args:
      file: binary file, whose header has been read.
      path: its path, for messages.
      shape: tuple of ints, as the header has it.
      dtype: `numpy.dtype` of the values.

    Returns:
      Array of that shape.

    Raises:
      UserError: if there is less or more, or it does not fit in memory.
    """
    start, size = file.tell(), math.prod(shape) * dtype.itemsize
    announced = f"its header announces an array of {shape}"
    if min(shape) < 0:
        raise UserError(f"{path} is damaged: {announced}")
    require_memory(size, f"{path}: {announced}, which", "is it damaged?")
    content = file.read(size)
    if len(content) < size:
        raise UserError(
            f"{path} is cut off: {announced}, {start + size} bytes in all, but "
            f"there are {start + len(content)}"
        )
    if file.read(1):
        raise UserError(
            f"{path} is damaged or too long: {announced}, {start + size} bytes "
            "in all, but there are more"
        )
    return np.frombuffer(content, dtype).reshape(shape)
