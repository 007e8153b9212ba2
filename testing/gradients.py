"""Computes and checks gradients on any Keras backend: for tests only."""

import keras
import numpy as np
from keras import ops

from testing import numpy_oracle


def to_numpy(tensor):
    """A float32 array."""
    return ops.convert_to_numpy(ops.cast(tensor, "float32"))


def value_and_gradients(function, arguments, cotangent, dtype="float32"):
    """Returns f(*arguments) and the list of gradients of sum(f * cotangent).

    It checks that all are finite.
    """
    arguments = [np.asarray(argument, dtype) for argument in arguments]
    backend = keras.backend.backend()
    value, gradients = _BACKENDS[backend](function, arguments, cotangent)
    assert all(np.isfinite(array).all() for array in (value, *gradients))
    return value, gradients


def _tensorflow(function, arguments, cotangent):
    import tensorflow as tf

    tensors = [tf.constant(argument) for argument in arguments]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        value = function(*tensors)
    cotangent = tf.cast(cotangent, value.dtype)
    gradients = tape.gradient(
        value, tensors, cotangent, tf.UnconnectedGradients.ZERO
    )
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
    cotangent = torch.as_tensor(cotangent, dtype=value.dtype)
    gradients = torch.autograd.grad(
        value, tensors, cotangent, materialize_grads=True
    )
    return value.detach().numpy(), [g.numpy() for g in gradients]


_BACKENDS = {"tensorflow": _tensorflow, "jax": _jax, "torch": _torch}


def assert_gradients_close(actual, expected):
    """Compares lists of gradients by the largest entry of each."""
    for ours, oracle in zip(actual, expected, strict=True):
        np.testing.assert_allclose(
            ours, oracle, rtol=1e-4, atol=3e-5 * np.abs(oracle).max()
        )


def oracle_gradients(oracle, inputs, weights, cotangent):
    """Numerical gradients; those of weights are sums over the examples.

    The oracle takes one example of each input, and the weights; all have an
    axis of copies in front.
    """
    by_example = [
        numpy_oracle.numerical_gradients(oracle, [*example, *weights], c)
        for *example, c in zip(*inputs, cotangent, strict=True)
    ]
    by_argument = list(zip(*by_example, strict=True))
    of_inputs = [np.stack(g) for g in by_argument[: len(inputs)]]
    return of_inputs + [sum(g) for g in by_argument[len(inputs) :]]


def check_layer(layer, inputs, oracle, seed=11):
    """Checks outputs and all gradients of a layer with random weights.

    The oracle is that of `oracle_gradients`.
    """
    rng = np.random.default_rng(seed)
    layer.build(inputs.shape)
    weights = [rng.normal(size=w.shape) * 0.5 for w in layer.weights]
    shape = tuple(layer.compute_output_shape(inputs.shape))
    cotangent = rng.normal(size=shape)
    value, gradients = value_and_gradients(
        lambda x, *weights: layer.stateless_call(list(weights), [], x)[0],
        [inputs, *weights],
        cotangent,
    )
    assert value.shape == shape
    copies = [np.broadcast_to(w, (len(inputs), *w.shape)) for w in weights]
    np.testing.assert_allclose(value, oracle(inputs, *copies), atol=1e-5)
    expected = oracle_gradients(oracle, [inputs], weights, cotangent)
    assert_gradients_close(gradients, expected)


def check_whole_batch(function, arguments, oracle, seed=11):
    """Compares values and gradients; examples may depend on each other."""
    expected = oracle(*arguments)
    cotangent = np.random.default_rng(seed).normal(size=expected.shape)
    value, gradients = value_and_gradients(function, arguments, cotangent)
    np.testing.assert_allclose(value, expected, rtol=1e-4, atol=2e-5)
    expected = numpy_oracle.numerical_gradients(
        lambda *copies: np.stack(
            [oracle(*c) for c in zip(*copies, strict=True)]
        ),
        arguments,
        cotangent,
    )
    assert_gradients_close(gradients, expected)


def random_capsules(layer, shape, atoms=16, scale=1.0):
    """Builds a layer of pairs for activations of this shape.

    Returns random poses, activations in [0, 1] and trainable weights.
    """
    layer.build([(*shape, atoms), shape])
    rng = np.random.default_rng(3)
    poses, activations = (
        rng.normal(size=(*shape, atoms)),
        rng.uniform(size=shape),
    )
    weights = [rng.normal(size=w.shape) for w in layer.trainable_weights]
    return [scale * poses, activations, *(scale * w for w in weights)]


def poses_and_activations(layer, **options):
    """A function of poses, activations and weights; returns [..., A + 1]."""
    state = [ops.convert_to_tensor(v) for v in layer.non_trainable_variables]

    def function(poses, activations, *weights):
        outputs, _ = layer.stateless_call(
            list(weights), state, (poses, activations), **options
        )
        return ops.concatenate([outputs[0], outputs[1][..., None]], axis=-1)

    return function
