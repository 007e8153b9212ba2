"""The reference's initial weights."""

import keras

# Of capsule layers and dense layers; of other convolutions it is 0.05.
WEIGHT_STDDEV = 0.1
BIAS = 0.1


def truncated_normal(stddev=WEIGHT_STDDEV):
    """An initialiser: a normal distribution that is cut at two deviations."""
    return keras.initializers.TruncatedNormal(stddev=stddev)


def constant_bias():
    """An initialiser: 0.1 everywhere."""
    return keras.initializers.Constant(BIAS)


def like_the_reference(stddev=WEIGHT_STDDEV):
    """Keyword arguments with both, for a layer of Keras.

    Args:
      stddev: float, of the kernel.
    """
    return {
        "kernel_initializer": truncated_normal(stddev),
        "bias_initializer": constant_bias(),
    }
