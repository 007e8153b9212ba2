"""The reference's initial weights."""

import keras
from keras import ops

# Of capsule layers and dense layers; of other convolutions it is 0.05.
WEIGHT_STDDEV = 0.1
BIAS = 0.1


@keras.saving.register_keras_serializable(package="capsules")
class TruncatedNormal(keras.initializers.TruncatedNormal):
    """A normal distribution that is cut at two deviations on every backend.

    On torch Keras' own draws four numbers for one, and where all four are
    beyond the cut, four times in a million, keeps the first.
    """

    def __call__(self, shape, dtype=None):
        numbers = super().__call__(shape, dtype)
        cut = 2 * self.stddev
        return ops.clip(numbers, self.mean - cut, self.mean + cut)


def like_the_reference(stddev=WEIGHT_STDDEV):
    """Keyword arguments with both, for a layer of Keras.

    Args:
      stddev: float, of the kernel.
    """
    return {
        "kernel_initializer": TruncatedNormal(stddev=stddev),
        "bias_initializer": keras.initializers.Constant(BIAS),
    }
