"""What all layers share: tensors, positions of kernels, and base classes."""

import math
from typing import Any, TypeAlias, TypeVar

import keras
from keras import ops

from .backends import is_mirrored

# Of any backend, a NumPy array or a symbolic Keras tensor; Keras has no types.
Tensor: TypeAlias = Any
Pair: TypeAlias = tuple[Tensor, Tensor]  # poses and activations
Shape: TypeAlias = tuple[Any, ...]  # of int or None; or two shapes, of a pair
Names: TypeAlias = tuple[str, ...]

# Added to squared lengths of capsules, so that gradients are finite at zero.
# For lengths >= 1e-4 it is below the rounding error of float32.
EPSILON = 1e-16


def mask_out(inputs: Tensor, mask: Tensor | None) -> Tensor:
    """Sets capsules to zero where `mask` is False, so that they do not vote.

    `inputs` are capsules [..., a], `mask` is bool [...].
    """
    if mask is None:
        return inputs
    require_shape("mask", mask, inputs.shape[:-1])
    return ops.where(ops.expand_dims(mask, -1), inputs, 0)


def require_shape(name: str, tensor: Tensor, shape, hint: str = "") -> None:
    """Raises ValueError unless `tensor` has `shape`, where None is any size."""
    sizes = zip(tensor.shape, shape, strict=False)
    is_same = all(None in pair or pair[0] == pair[1] for pair in sizes)
    if len(tensor.shape) != len(shape) or not is_same:
        raise ValueError(
            f"`{name}` must have the shape {tuple(shape)}{hint}. "
            f"Received: {tuple(tensor.shape)}"
        )


def largest(tensor: Tensor, axis: int | tuple[int, ...]) -> Tensor:
    """`ops.max` with `keepdims=True` that accepts an empty batch."""
    initial = -math.inf if 0 in tensor.shape else None
    return ops.max(tensor, axis=axis, keepdims=True, initial=initial)


def slice_axis(tensor, axis: int, start: int = 0, stop: int | None = None):
    """Returns `tensor[start:stop]` along one axis, both not negative.

    On CPUs TensorFlow's gradient of `ops.slice` is 3 to 10 times as fast as
    that of indexing.
    """
    shape = list(ops.shape(tensor))
    if stop is None:
        stop = shape[axis]
    if start == 0 and tensor.shape[axis] == stop:
        return tensor
    starts = [0] * len(shape)
    starts[axis], shape[axis] = start, stop - start
    return ops.slice(tensor, starts, shape)


def positions_of(size: int, kernel: int, strides: int, padding: str) -> int:
    """Number of positions of a kernel along one axis."""
    if padding.upper() not in ("VALID", "SAME"):
        raise ValueError(
            f'`padding` must be "VALID" or "SAME". Received: {padding!r}'
        )
    if size is None:
        raise ValueError("The height and width of the input must be known")
    overlap = kernel - 1 if padding.upper() == "VALID" else 0
    if overlap >= size:
        raise ValueError(f"The kernel exceeds the input: {kernel} > {size}")
    return -(-(size - overlap) // strides)


def zeros_around(size, kernel, strides, padding):
    """Numbers of zeros that `padding` adds at the start and end of an axis."""
    positions = positions_of(size, kernel, strides, padding)
    missing = max((positions - 1) * strides + kernel - size, 0)
    return missing // 2, missing - missing // 2


T = TypeVar("T")


def registered(item: T) -> T:
    """Registers a class or function so that Keras can load it by its name."""
    return keras.saving.register_keras_serializable(package="capsules")(item)


# Initial weights of the reference's capsule and dense layers; plain
# convolutions have a standard deviation of 0.05.
WEIGHT_STDDEV = 0.1
BIAS = 0.1


@registered
class TruncatedNormal(keras.initializers.TruncatedNormal):
    """Normal distribution truncated at two standard deviations.

    Clips the numbers that Keras' own initializer draws outside it on torch.
    """

    def __call__(self, shape, dtype=None):
        values = super().__call__(shape, dtype)
        limit = 2 * self.stddev
        return ops.clip(values, self.mean - limit, self.mean + limit)


def reference_initializers(stddev: float = WEIGHT_STDDEV) -> dict:
    """The reference's initializers, as keyword arguments of a Keras layer."""
    return {
        "kernel_initializer": TruncatedNormal(stddev=stddev),
        "bias_initializer": keras.initializers.Constant(BIAS),
    }


def batch_normalization(name, axis=-1, momentum=0.9, epsilon=1e-5, **options):
    """`BatchNormalization` over all replicas, with PyTorch's default values."""
    options |= {"synchronized": is_mirrored(), "name": name}
    return keras.layers.BatchNormalization(axis, momentum, epsilon, **options)


class Layer(keras.layers.Layer):
    """Base of layers; a mask raises ValueError unless `call` takes `mask`."""

    # Arguments of the constructor. `get_config` reads them from attributes.
    arguments: Names = ()

    def get_config(self) -> dict[str, Any]:
        saved = {name: getattr(self, name) for name in self.arguments}
        return {**super().get_config(), **saved}

    def compute_mask(self, inputs: Any, previous_mask: Any) -> Any:
        masks = keras.tree.flatten(previous_mask)
        has_masks = any(mask is not None for mask in masks)
        if has_masks and "mask" not in self.call_signature_parameters:
            raise ValueError(f"The layer {self.name!r} does not support masks")


class CapsuleLayer(Layer):
    """Base of layers with `num_capsules` output capsules of `num_atoms` atoms.

    Inputs are [B, I, a] and outputs [B, O, A] unless a subclass differs.
    """

    arguments: Names = ("num_capsules", "num_atoms")

    def __init__(self, num_capsules: int, num_atoms: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.num_capsules = num_capsules
        self.num_atoms = num_atoms
        self.input_spec = keras.layers.InputSpec(ndim=3)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (input_shape[0], self.num_capsules, self.num_atoms)


def with_mask(function, inputs, mask):
    """Calls `function(inputs, mask)`; None becomes Keras' mask of `inputs`."""
    layer = keras.layers.Lambda(function, mask=lambda *_: None, autocast=False)
    return layer(inputs, mask=mask)
