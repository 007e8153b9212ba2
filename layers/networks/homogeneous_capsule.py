"""Homogeneous vector capsules, which are not routed, and their network.

Sources: A. Byerly, T. Kalganova, I. Dear, "No routing needed between capsules",
https://arxiv.org/abs/2001.09136, and the authors' code.
"""

import math
from typing import Any, Literal

import keras
from keras import ops

from ..base_layers import Layer, Shape, Tensor, batch_normalization, registered
from ..capsule import Length
from .base import Tensors, convolution_block, network

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

    Input shape: [B, H, W, C]; unknown H, W or C raise ValueError. Output shape:
    [B, O, a].
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
            raise ValueError(f"Sizes must be known. Received: {input_shape}")
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


# Initial weights of the branches; those of "equal" are not trained.
MERGES = {"equal": "ones", "random": INITIALIZER, "ones": "ones"}


@network("cross-entropy", "0.001 * 0.98 ** (step // 500)", 1e-7, "softmax")
def homogeneous_capsule(
    images: Tensor,
    num_classes: int,
    *,
    convolutions: int = 9,
    first_channels: int = 32,
    more_channels: int = 16,
    branches: int = 3,
    order: Literal["xyz", "zxy"] = "xyz",
    merge: Literal["equal", "random", "ones"] = "ones",
    momentum: float = 0.99,
) -> Tensors:
    """3x3 convolutions with capsule branches, which are merged to logits.

    The last convolution and every third before it, at most `branches` in all,
    have a branch. The capsule lengths [B, classes, branches] are multiplied by
    a weight per branch, normalized over batch and classes, and summed over the
    branches. Due to the normalization, only the signs of these weights matter.

    Args:
      convolutions: int, number of convolutions.
      first_channels: int, channels of the first convolution.
      more_channels: int, channels that each convolution adds.
      branches: int, largest number of branches; every third convolution can
        have one.
      order: str, input capsules of a branch: one per position (xyz) or channel
        (zxy).
      merge: str, initial weights of the branches; equal: ones that are never
        trained.
      momentum: float, of all batch normalizations; the authors' is 0.9997.
    """
    norm = {"momentum": momentum, "epsilon": 1e-3, "scale": False}
    options = {"kernel_initializer": INITIALIZER, **norm}
    outputs, x = {}, 2.0 * images - 1.0
    for n in range(convolutions):
        block = convolution_block(
            first_channels + n * more_channels, 3, 1, f"conv{n + 1}", **options
        )
        x = outputs[block.name] = block(x)
    ends = range(convolutions, 0, -3)[:branches][::-1]
    weigh = keras.layers.EinsumDense(
        "bok,k->bok",
        (num_classes, len(ends)),
        kernel_initializer=MERGES[merge],
        trainable=merge != "equal",
        dtype="float32",
    )
    normalize = batch_normalization("norm", dtype="float32", **norm)
    merge_lengths = keras.Sequential([weigh, normalize], name="merge")
    lengths = []
    for end in ends:
        name = f"branch{end}"
        branch = HomogeneousCapsule(num_classes, order, momentum, name=name)
        capsules = outputs[name] = branch(outputs[f"conv{end}"])
        lengths.append(Length()(capsules))
    logits = ops.sum(merge_lengths(ops.stack(lengths, axis=-1)), axis=-1)
    return {**outputs, "logits": logits, "capsules": capsules}
