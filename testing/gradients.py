"""Computes and checks gradients on any Keras backend: for tests only."""

import keras
import numpy as np
from keras import ops

from testing import numpy_oracle


def to_numpy(tensors):
    """Converts a tensor, or those of a list or dict, to float32 arrays."""
    return keras.tree.map_structure(
        lambda each: ops.convert_to_numpy(ops.cast(each, "float32")), tensors
    )


def value_and_gradients(function, arguments, cotangent):
    """Returns f(*arguments) and the list of gradients of sum(f * cotangent).

    Asserts that all are finite.
    """
    arguments = [np.asarray(argument, "float32") for argument in arguments]
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


def check(function, inputs, weights, oracle, slack=1.0, scale=1.0):
    """Compares values and all gradients with those of an oracle.

    The oracle takes examples of each input, and as many copies of the weights.
    `slack` multiplies the tolerances, `scale` the gradients of the outputs.
    """
    copies = [np.broadcast_to(w, (len(inputs[0]), *w.shape)) for w in weights]
    expected = oracle(*inputs, *copies)
    cotangent = np.random.default_rng(11).normal(size=expected.shape) * scale
    value, gradients = value_and_gradients(
        function, [*inputs, *weights], cotangent
    )
    np.testing.assert_allclose(
        value, expected, rtol=1e-4 * slack, atol=2e-5 * slack
    )
    by_example = [
        numpy_oracle.numerical_gradients(oracle, [*example, *weights], c)
        for *example, c in zip(*inputs, cotangent, strict=True)
    ]
    noise = 2e-6 * max(np.abs(each).max() for each in gradients)
    by_argument = zip(gradients, *by_example, strict=True)
    for number, (ours, *each) in enumerate(by_argument):
        oracles = np.stack(each) if number < len(inputs) else sum(each)
        largest = np.abs(oracles).max()
        atol = 3e-5 * slack * largest + noise
        np.testing.assert_allclose(ours, oracles, rtol=1e-4 * slack, atol=atol)


def check_layer(layer, inputs, oracle, method=None):
    """Checks a layer with random weights.

    The oracle's `part=1` is the result of the layer's method of this name.
    """
    rng = np.random.default_rng(11)
    layer.build(inputs.shape)
    weights = [rng.normal(size=w.shape) * 0.5 for w in layer.weights]
    check(
        lambda x, *weights: layer.stateless_call(list(weights), [], x)[0],
        *([inputs], weights, oracle),
    )
    if method:
        layer.set_weights(weights)
        found = to_numpy(getattr(layer, method)(inputs.astype("float32")))
        copies = [np.stack([w] * len(inputs)) for w in weights]
        expected = oracle(inputs, *copies, part=1)
        np.testing.assert_allclose(found, expected, atol=1e-5)


def check_whole_batch(function, arguments, oracle, slack=1.0):
    """Checks a function of examples that may depend on each other.

    The oracle takes P whole batches.
    """
    check(
        lambda *batches: function(*(batch[0] for batch in batches))[None],
        [argument[None] for argument in arguments],
        [],
        oracle,
        slack,
    )


def one_by_one(oracle):
    """Makes an oracle for P batches from one for a single batch."""
    return lambda *p: np.stack([oracle(*one) for one in zip(*p, strict=True)])


def random_capsules(layer, shape, atoms=16, scale=1.0):
    """Builds a layer that takes poses and activations of `shape`.

    Returns random poses, activations in [0, 1] and trainable weights.
    """
    layer.build([(*shape, atoms), shape])
    rng = np.random.default_rng(3)
    poses = scale * rng.normal(size=(*shape, atoms))
    activations = rng.uniform(size=shape)
    weights = [rng.normal(size=w.shape) for w in layer.trainable_weights]
    return [poses, activations, *(scale * w for w in weights)]


def poses_and_activations(layer, **options):
    """A function from poses, activations and weights to [..., A + 1]."""
    state = [ops.convert_to_tensor(v) for v in layer.non_trainable_variables]

    def function(poses, activations, *weights):
        outputs, _ = layer.stateless_call(
            list(weights), state, (poses, activations), **options
        )
        return ops.concatenate([outputs[0], outputs[1][..., None]], axis=-1)

    return function
