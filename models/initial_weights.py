"""Initial weights that the reference gives to layers that Keras has."""

import keras

_BIAS = 0.1


def truncated_normal(stddev):
    """Keyword arguments for a Keras layer: kernel and bias initialisers.

    Args:
      stddev: float, standard deviation of the normal distribution that is
        cut at two deviations; biases start at 0.1.
    """
    return {
        "kernel_initializer": keras.initializers.TruncatedNormal(stddev=stddev),
        "bias_initializer": keras.initializers.Constant(_BIAS),
    }
