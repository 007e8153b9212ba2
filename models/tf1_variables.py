"""The reference's names, shapes and orders for the weights of a model.

What the layouts of the models are made of; each stands beside its model.

The reference computes with channels first, and its primary capsules with the
capsule type first; here positions come before channels and types. Weights
whose rows or columns run over flattened channels and positions are therefore
permuted between the two.
"""

import dataclasses
import math

import numpy as np

# Names of the weights of Keras' own layers, and the reference's.
_LEAVES = {"kernel": "weights", "bias": "biases"}


@dataclasses.dataclass(frozen=True)
class Tf1Variable:
    """A weight as a TF1 checkpoint has it, and the way to ours and back.

    Attributes:
      axes: tuple of tuples of int: for each axis in the checkpoint the sizes
        that are flattened into it, outermost first.
      order: tuple of int, the flattened sizes in the order in which ours has
        them; () if it is the same.
    """

    axes: tuple
    order: tuple = ()

    @property
    def shape(self):
        """Tuple of int, the shape in the checkpoint."""
        return tuple(math.prod(sizes) for sizes in self.axes)

    @property
    def _sizes(self):
        return tuple(size for sizes in self.axes for size in sizes)

    @property
    def _order(self):
        return self.order or tuple(range(len(self._sizes)))

    def from_tf1(self, array, shape):
        """An array of the checkpoint, as ours with the given shape."""
        apart = array.reshape(self._sizes).transpose(self._order)
        return apart.reshape(shape)

    def to_tf1(self, array):
        """The inverse of `from_tf1`."""
        sizes = [self._sizes[axis] for axis in self._order]
        apart = array.reshape(sizes).transpose(np.argsort(self._order))
        return apart.reshape(self.shape)


def tf1_name(variable):
    """The reference's name of one of our weights.

    Args:
      variable: trainable `keras.Variable` of a model.
    """
    _, *scopes, leaf = variable.path.split("/")
    return "/".join([*scopes, _LEAVES.get(leaf, leaf)])


def plain(*sizes):
    """A weight whose values stand in the same order here and there."""
    return Tf1Variable(tuple((size,) for size in sizes))


def layer(name, inputs, units):
    """Weights [*inputs, units] and biases [units]."""
    return {
        f"{name}/weights": plain(*inputs, units),
        f"{name}/biases": plain(units),
    }
