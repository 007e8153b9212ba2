"""Initial weights of the reference's layers."""

import keras
from keras import ops

from .base_layers import registered

# Initial weights of the reference's capsule and dense layers; plain
# convolutions have a standard deviation of 0.05.
WEIGHT_STDDEV = 0.1
BIAS = 0.1


@registered
class TruncatedNormal(keras.initializers.TruncatedNormal):
    """Normal distribution truncated at two standard deviations.

    Clips the numbers that Keras' own initializer draws outside it on torch.
    """

    def __call__(self, shape, dtype=None):
        values = super().__call__(shape, dtype)
        limit = 2 * self.stddev
        return ops.clip(values, self.mean - limit, self.mean + limit)


def reference_initializers(stddev: float = WEIGHT_STDDEV) -> dict:
    """The reference's initializers, as keyword arguments of a Keras layer."""
    return {
        "kernel_initializer": TruncatedNormal(stddev=stddev),
        "bias_initializer": keras.initializers.Constant(BIAS),
    }
