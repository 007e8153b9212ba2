"""The reference's names, shapes and orders for the weights of our models.

The reference computes with channels first, and its primary capsules with the
capsule type first; here positions come before channels and types. Weights
whose rows or columns run over flattened channels and positions are therefore
permuted between the two.
"""

import dataclasses
import math

import numpy as np

from common.errors import UserError
from layers.reconstruction import HIDDEN_UNITS
from models import baseline, capsule

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


def tf1_variables(model, shape, hparams):
    """The weights that a TF1 checkpoint of a network has.

    Args:
      model: string, a key of `models.registry.MODELS`.
      shape: `features.ImageShape`.
      hparams: `HParams`.

    Returns:
      dict from the reference's name to `Tf1Variable`.

    Raises:
      UserError: for a model that the reference does not have.
    """
    if model not in _VARIABLES:
        raise UserError(
            f"model {model} has no TF1 checkpoints; those that have: "
            f"{', '.join(sorted(_VARIABLES))}"
        )
    return _VARIABLES[model](shape, hparams)


def tf1_name(variable):
    """The reference's name of one of our weights.

    Args:
      variable: trainable `keras.Variable` of a model.
    """
    _, *scopes, leaf = variable.path.split("/")
    return "/".join([*scopes, _LEAVES.get(leaf, leaf)])


def _capsule(shape, hparams):
    def positions(size):
        size = _convolved(size, capsule.KERNEL_SIZE, 1, hparams.padding)
        return _convolved(
            size, capsule.KERNEL_SIZE, capsule.PRIMARY_STRIDES, hparams.padding
        )

    types, atoms = hparams.num_prime_capsules, hparams.primary_atoms
    primary = (types, positions(shape.height), positions(shape.width))
    classes = (shape.num_classes, hparams.class_atoms)
    variables = {
        **_layer(
            "conv1",
            (capsule.KERNEL_SIZE, capsule.KERNEL_SIZE, shape.depth),
            hparams.conv_channels,
        ),
        "conv_capsule1/weights": _plain(
            capsule.KERNEL_SIZE,
            capsule.KERNEL_SIZE,
            hparams.conv_channels,
            types * atoms,
        ),
        "conv_capsule1/biases": _plain(types, atoms, 1, 1),
        # Input capsules: type, row, column there; row, column, type here.
        "capsule2/weights": Tf1Variable(
            (primary, (atoms,), (math.prod(classes),)), (1, 2, 0, 3, 4)
        ),
        "capsule2/biases": _plain(*classes),
    }
    if not hparams.remake:
        return variables
    # Pixels: channel, row, column there; row, column, channel here.
    pixels = (shape.depth, shape.height, shape.width)
    first, second = HIDDEN_UNITS
    return {
        **variables,
        **_layer("recons/recons_1", (math.prod(classes),), first),
        **_layer("recons/recons_2", (first,), second),
        "recons/recons_3/weights": Tf1Variable(
            ((second,), pixels), (0, 2, 3, 1)
        ),
        "recons/recons_3/biases": Tf1Variable((pixels,), (1, 2, 0)),
    }


def _baseline(shape, hparams):
    def positions(size):
        for _ in baseline.CONV_CHANNELS:
            size = _convolved(size, baseline.KERNEL_SIZE, 1, hparams.padding)
            size = _convolved(
                size, baseline.POOL_SIZE, baseline.POOL_SIZE, "SAME"
            )
        return size

    kernel = (baseline.KERNEL_SIZE, baseline.KERNEL_SIZE)
    first, second = baseline.CONV_CHANNELS
    pooled = (second, positions(shape.height), positions(shape.width))
    return {
        **_layer("conv1", (*kernel, shape.depth), first),
        **_layer("conv2", (*kernel, first), second),
        # Rows: channel, row, column there; row, column, channel here.
        "fc1/weights": Tf1Variable(
            (pooled, (baseline.DENSE_UNITS,)), (1, 2, 0, 3)
        ),
        "fc1/biases": _plain(baseline.DENSE_UNITS),
        **_layer("softmax_layer", (baseline.DENSE_UNITS,), shape.num_classes),
    }


_VARIABLES = {"capsule": _capsule, "baseline": _baseline}


def _plain(*sizes):
    """A weight whose values stand in the same order here and there."""
    return Tf1Variable(tuple((size,) for size in sizes))


def _layer(name, inputs, units):
    """Weights [*inputs, units] and biases [units]."""
    return {
        f"{name}/weights": _plain(*inputs, units),
        f"{name}/biases": _plain(units),
    }


def _convolved(size, kernel_size, strides, padding):
    """Positions that a window takes along `size` pixels; 0 if it is larger."""
    if padding == "VALID":
        size = size - kernel_size + 1
    return max(0, -(-size // strides))
