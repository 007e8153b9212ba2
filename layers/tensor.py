"""The type of what layers and losses take and give."""

from typing import Any, TypeAlias

# A tensor of any backend or a NumPy array, or Keras' symbol of one: they have
# no class in common.
Tensor: TypeAlias = Any
