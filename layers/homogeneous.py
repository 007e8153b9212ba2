"""Homogeneous vector capsules, which are not routed.

Sources: A. Byerly, T. Kalganova, I. Dear, "No routing needed between capsules",
https://arxiv.org/abs/2001.09136, and the authors' code.
"""

import math
from typing import Any

import keras
from keras import ops

from .base_layers import Layer, batch_normalization, registered
from .tensors import Shape, Tensor

# Keras' normal distribution, with the authors' standard deviation, 0.05.
INITIALIZER = "random_normal"
# Products [B, p, c] * [a, I, O] -> [B, O, a] of a map with positions p.
ORDERS = {"xyz": "bpc,cpo->boc", "zxy": "bpc,pco->bop"}


@registered
class HomogeneousCapsule(Layer):
    """Capsules whose atoms never mix: each weight multiplies one atom.

    Output o is relu(batch normalization(sum over i of kernel[:, i, o] * u[i])),
    where u[i] are the input capsules. All outputs use the same normalization.

    Weights: `kernel` [a, I, O], initially normal with a standard deviation of
    0.05; `beta`, `moving_mean` and `moving_variance` [a].

    Args:
      num_capsules: int, O.
      order: "xyz": each of the I = H * W positions is a capsule of a = C atoms;
        "zxy": each of the I = C channels is a capsule of a = H * W atoms.
      momentum: float, of the moving mean and variance.

    Raises:
      ValueError: for another `order`, or if H, W or C is unknown.

    Input shape: [B, H, W, C]. Output shape: [B, O, a].
    """

    arguments = ("num_capsules", "order", "momentum")

    def __init__(
        self,
        num_capsules: int,
        order: str = "xyz",
        momentum: float = 0.9997,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if order not in ORDERS:
            raise ValueError(f"`order` must be xyz or zxy. Received: {order!r}")
        self.num_capsules = num_capsules
        self.order = order
        self.momentum = momentum
        options = {"scale": False, "dtype": "float32"}
        self.norm = batch_normalization("norm", -1, momentum, 1e-3, **options)
        self.input_spec = keras.layers.InputSpec(ndim=4)

    def build(self, input_shape: Shape) -> None:
        if None in input_shape[1:]:
            raise ValueError(
                f"All sizes must be known. Received: {input_shape}"
            )
        *_, atoms = self.compute_output_shape(input_shape)
        capsules = math.prod(input_shape[1:]) // atoms
        shape = atoms, capsules, self.num_capsules
        self.kernel = self.add_weight(shape, INITIALIZER, name="kernel")
        self.norm.build((None, self.num_capsules, atoms))
        self.input_spec = keras.layers.InputSpec(shape=(None, *input_shape[1:]))

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        inputs = ops.cast(inputs, self.compute_dtype)
        _, height, width, channels = inputs.shape
        positions = ops.reshape(inputs, (-1, height * width, channels))
        sums = ops.einsum(ORDERS[self.order], positions, self.kernel)
        outputs = ops.relu(self.norm(sums, training=training))
        return ops.cast(outputs, self.compute_dtype)

    def multiply_adds(self, input_shape: Shape) -> int:
        return math.prod(self.kernel.shape)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        batch, height, width, channels = input_shape
        atoms = channels if self.order == "xyz" else height * width
        return (batch, self.num_capsules, atoms)
