"""Values and gradients by any Keras backend: for tests only."""

import keras
import numpy as np


def value_and_gradients(function, arguments, cotangent):
    """The value of a function and the gradients of sum(value * cotangent).

    Args:
      function: takes and returns tensors of the backend.
      arguments: list of arrays; gradients are taken for each.
      cotangent: array of the shape of the value.

    Returns:
      Pair of the value, an array, and the list of gradients, arrays.
    """
    arguments = [np.asarray(argument, "float32") for argument in arguments]
    backend = keras.backend.backend()
    return _BACKENDS[backend](function, arguments, cotangent)


def _tensorflow(function, arguments, cotangent):
    import tensorflow as tf

    tensors = [tf.constant(argument) for argument in arguments]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        value = function(*tensors)
    gradients = tape.gradient(value, tensors, tf.cast(cotangent, value.dtype))
    return value.numpy(), [gradient.numpy() for gradient in gradients]


def _jax(function, arguments, cotangent):
    import jax

    value, pull_back = jax.vjp(function, *arguments)
    gradients = pull_back(jax.numpy.asarray(cotangent, value.dtype))
    return np.asarray(value), [np.asarray(g) for g in gradients]


def _torch(function, arguments, cotangent):
    import torch

    tensors = [torch.tensor(a, requires_grad=True) for a in arguments]
    value = function(*tensors)
    value.backward(torch.as_tensor(cotangent, dtype=value.dtype))
    return value.detach().numpy(), [t.grad.numpy() for t in tensors]


_BACKENDS = {"tensorflow": _tensorflow, "jax": _jax, "torch": _torch}
