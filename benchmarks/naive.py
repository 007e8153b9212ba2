"""The capsule network written as the reference writes it, to compare with.

Votes are tiled, multiplied and summed; routing is a loop of the backend that
keeps the capsules of every iteration. The weights, and so the results, are
those of the layers in `layers`; time and memory are not.
"""

import unittest.mock

import keras
from keras import ops

import layers
from layers import network
from models.capsule import CapsuleModel


class NaiveCapsule(layers.Capsule):
    """`Capsule` with votes by tile, multiply and sum."""

    def call(self, inputs):
        size = self.num_capsules * self.num_atoms
        tiled = ops.tile(ops.expand_dims(inputs, -1), (1, 1, 1, size))
        votes = ops.sum(tiled * self.kernel, axis=2)  # [B, I, O * A]
        votes = ops.reshape(
            votes, (-1, inputs.shape[1], self.num_capsules, self.num_atoms)
        )
        return _route(votes, self)


class NaiveConvSlimCapsule(layers.ConvSlimCapsule):
    """`ConvSlimCapsule` that routes in the reference's order of axes."""

    def call(self, inputs):
        _, height, width, types, atoms = inputs.shape
        images = ops.transpose(inputs, (0, 3, 1, 2, 4))
        votes = ops.conv(
            ops.reshape(images, (-1, height, width, atoms)),
            self.kernel,
            strides=self.strides,
            padding=self.padding.lower(),
            data_format="channels_last",
        )
        positions = votes.shape[1:3]
        shape = (-1, types, *positions, self.num_capsules, self.num_atoms)
        # [B, I, O, A, h, w]
        votes = ops.transpose(ops.reshape(votes, shape), (0, 1, 4, 5, 2, 3))
        return ops.transpose(_route(votes, self), (0, 3, 4, 1, 2))


def _route(votes, layer):
    """Votes [B, I, O, A, ...] -> capsules [B, O, A, ...]."""
    positions = (1,) * (len(votes.shape) - 4)
    biases = ops.reshape(layer.biases, (*layer.biases.shape, *positions))
    softmax = layers.leaky_softmax if layer.leaky else ops.softmax

    def iteration(logits, _):
        couplings = ops.expand_dims(softmax(logits, axis=2), 3)
        s = ops.sum(couplings * votes, axis=1) + biases
        norm = ops.sqrt(ops.sum(ops.square(s), axis=2, keepdims=True))
        v = s / norm * (norm**2 / (1 + norm**2))
        repeats = [1] * len(votes.shape)
        repeats[1] = votes.shape[1]
        replicated = ops.tile(ops.expand_dims(v, 1), repeats)
        return logits + ops.sum(votes * replicated, axis=3), v

    logits = ops.zeros_like(votes[:, :, :, 0])
    return _last(iteration, logits, layer.num_routing)


def _last(iteration, logits, count):
    """What the last of `count` iterations gives, in a loop of the backend."""
    if keras.backend.backend() != "tensorflow":
        return ops.scan(iteration, logits, length=count)[1][-1]
    import tensorflow as tf

    # As in the reference; `ops.scan` would need the logits' batch size.
    shape = logits.shape
    results = tf.TensorArray(logits.dtype, count, clear_after_read=False)

    def body(i, logits, results):
        logits, v = iteration(logits, None)
        logits.set_shape(shape)
        return i + 1, logits, results.write(i, v)

    _, _, results = tf.while_loop(
        lambda i, *_: i < count, body, (0, logits, results)
    )
    return results.read(count - 1)


def naive_model(*args, **kwargs):
    """A `CapsuleModel` of the naive layers, by its arguments."""
    naive = {"Capsule": NaiveCapsule, "ConvSlimCapsule": NaiveConvSlimCapsule}
    with unittest.mock.patch.multiple(network, **naive):
        return CapsuleModel(*args, **kwargs)
