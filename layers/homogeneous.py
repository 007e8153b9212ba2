"""Homogeneous vector capsules: capsules without routing.

Axes, atoms always last: B batch, I input capsules and O output capsules of a
atoms each, K branches.

Sources: A. Byerly, T. Kalganova, I. Dear, "No routing needed between
capsules", https://arxiv.org/abs/2001.09136, and the authors' code.
"""

from typing import Any

import keras
from keras import ops

from .base_layers import Layer, batch_normalization, registered
from .tensors import Shape, Tensor

# The axes of a map [B, H, W, C] in each order.
ORDERS = {"xyz": (0, 1, 2, 3), "zxy": (0, 3, 1, 2)}
# Keras' normal distribution has a standard deviation of 0.05, as the authors'.
INITIALIZER = "random_normal"
MERGE_INITIALIZERS = {"equal": None, "random": INITIALIZER, "ones": "ones"}


def _normalization(momentum):
    return batch_normalization(
        "norm", momentum=momentum, epsilon=1e-3, scale=False, dtype="float32"
    )


@registered
class HomogeneousCapsule(Layer):
    """Capsules whose atoms never mix: weights multiply them one by one.

    s[b, o, :] = sum over i of kernel[:, i, o] * u[b, i, :] (element by
    element), and the output is relu(batch normalization(s)). One mean, one
    variance and one shift serve an atom of all output capsules; there is no
    scale. Normalization is computed in float32.

    Input capsules are the numbers of a map, in a fixed order, cut into pieces
    of `num_atoms`.

    Weights: `kernel` [a, I, O], initially normal with a standard deviation of
    0.05, and `beta`, `moving_mean` and `moving_variance` [a].

    Args:
      num_capsules: int, O, number of output capsules.
      num_atoms: int, a, a divisor of H * W * C. None makes one capsule for
        each position with "xyz", for each channel with "zxy".
      order: "xyz", rows, columns, channels, or "zxy", channels first.
      momentum: float, of the moving mean and variance.

    Input shape: [B, H, W, C]. Output shape: [B, O, a].
    """

    arguments = ("num_capsules", "num_atoms", "order", "momentum")

    def __init__(
        self,
        num_capsules: int,
        num_atoms: int | None = None,
        order: str = "xyz",
        momentum: float = 0.9997,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if order not in ORDERS:
            raise ValueError(
                f"`order` must be one of {list(ORDERS)}. Received: {order!r}"
            )
        self.num_capsules = num_capsules
        self.num_atoms = num_atoms
        self.order = order
        self.momentum = momentum
        self.norm = _normalization(momentum)
        self.input_spec = keras.layers.InputSpec(ndim=4)

    def _sizes(self, input_shape):
        """Number of input capsules and of their atoms."""
        _, height, width, channels = input_shape
        is_by_channel = self.order == "zxy"
        default = height * width if is_by_channel else channels
        atoms = self.num_atoms or default
        capsules, rest = divmod(height * width * channels, atoms)
        if rest:
            raise ValueError(
                f"Height * width * channels must be a multiple of {atoms} "
                f"atoms. Received: input_shape={input_shape}"
            )
        return capsules, atoms

    def build(self, input_shape: Shape) -> None:
        capsules, atoms = self._sizes(input_shape)
        self.kernel = self.add_weight(
            (atoms, capsules, self.num_capsules),
            INITIALIZER,
            name="kernel",
        )
        self.norm.build((None, self.num_capsules, atoms))
        self.input_spec = keras.layers.InputSpec(shape=(None, *input_shape[1:]))

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        atoms, capsules, _ = self.kernel.shape
        inputs = ops.transpose(inputs, ORDERS[self.order])
        capsules = ops.reshape(inputs, (-1, capsules, atoms))
        # One product of matrices for each atom: [a, B, I] @ [a, I, O].
        sums = ops.matmul(ops.transpose(capsules, (2, 0, 1)), self.kernel)
        sums = ops.transpose(sums, (1, 2, 0))
        outputs = ops.relu(self.norm(sums, training=training))
        return ops.cast(outputs, self.compute_dtype)

    def multiply_adds(self, input_shape: Shape) -> int:
        atoms, capsules, num_capsules = self.kernel.shape
        return atoms * capsules * num_capsules

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (input_shape[0], self.num_capsules, self._sizes(input_shape)[1])


@registered
class MergeBranches(Layer):
    """Logits from the lengths of class capsules of several branches.

    sum over k of batch normalization(weights[k] * z[:, :, k]), with one mean
    and variance for each branch, over the batch and the classes. Hence only the
    sign of a weight counts, and its size in comparison with the epsilon of the
    normalization. `beta` [K] is the same for all classes; the gradient of a
    softmax for it is 0.

    Args:
      merge: initial `weights` [K]: "ones", "random", normal with a standard
        deviation of 0.05, or "equal", all 1 without weights.
      momentum: float, of the moving mean and variance.

    Input: list of K tensors z[:, :, k], [B, O]. Output: float32 [B, O].
    """

    arguments = ("merge", "momentum")

    def __init__(
        self, merge: str = "ones", momentum: float = 0.9997, **kwargs: Any
    ):
        super().__init__(**{"dtype": "float32", **kwargs})
        if merge not in MERGE_INITIALIZERS:
            raise ValueError(
                f"`merge` must be one of {list(MERGE_INITIALIZERS)}. "
                f"Received: {merge!r}"
            )
        self.merge = merge
        self.momentum = momentum
        self.norm = _normalization(momentum)
        self.kernel = None

    def build(self, input_shape: Shape) -> None:
        num_branches = len(input_shape)
        if self.merge != "equal":
            self.kernel = self.add_weight(
                (num_branches,), MERGE_INITIALIZERS[self.merge], name="weights"
            )
        self.norm.build((*input_shape[0], num_branches))

    def call(
        self, inputs: list[Tensor], training: bool | None = None
    ) -> Tensor:
        lengths = ops.stack(inputs, axis=-1)
        if self.kernel is not None:
            lengths = lengths * self.kernel
        return ops.sum(self.norm(lengths, training=training), axis=-1)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return tuple(input_shape[0])
