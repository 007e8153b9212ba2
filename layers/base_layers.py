"""Base classes of layers, their registration, and batch normalization."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import keras

from .backends import is_mirrored
from .tensors import Names, Pair, Shape, Tensor


def batch_normalization(name, axis=-1, momentum=0.9, epsilon=1e-5, **options):
    """`BatchNormalization` over all replicas, with PyTorch's default values."""
    options |= {"synchronized": is_mirrored(), "name": name}
    return keras.layers.BatchNormalization(axis, momentum, epsilon, **options)


T = TypeVar("T")


def registered(item: T) -> T:
    """Registers a class or function so that Keras can load it by its name."""
    return keras.saving.register_keras_serializable(package="capsules")(item)


if TYPE_CHECKING:

    class Model(keras.Model):
        """A network that returns a dict of outputs."""

        __call__: Callable[..., dict[str, Tensor]]
else:
    Model = keras.Model


class Layer(keras.layers.Layer):
    """Base of layers; a mask raises ValueError unless `call` takes `mask`."""

    # Arguments of the constructor. `get_config` reads them from attributes.
    arguments: Names = ()
    __call__: Callable[..., Tensor]  # Keras has no types

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


class PoseLayer(Layer):
    """Base of layers that return poses and float32 activations."""

    __call__: Callable[..., Pair]  # type: ignore[assignment]

    def compute_output_spec(self, inputs: Any, training: Any = None) -> Any:
        # Keras cannot infer shapes through blocks, and gives both one dtype.
        shapes = keras.tree.map_structure(lambda tensor: tensor.shape, inputs)
        dtypes = self.compute_dtype, "float32"
        shapes = self.compute_output_shape(shapes)
        return tuple(map(keras.KerasTensor, shapes, dtypes))


def pair_specs(shapes: Shape) -> list[keras.layers.InputSpec]:
    """`input_spec` of poses [B, H, W, I, a] and activations [B, H, W, I]."""
    is_pair = len(shapes) == 2 and isinstance(shapes[0], (tuple, list))
    poses = shapes[0] if is_pair else ()
    if len(poses) != 5 or tuple(poses[:-1]) != tuple(shapes[1]):
        raise ValueError(
            "The inputs must be a pair: poses [B, H, W, I, a] and activations "
            f"[B, H, W, I] with the same axes B, H, W, I. Received: {shapes}"
        )
    return [keras.layers.InputSpec(shape=(None, *s[1:])) for s in shapes]


def with_mask(function, inputs, mask):
    """Calls `function(inputs, mask)`; None becomes Keras' mask of `inputs`."""
    layer = keras.layers.Lambda(function, mask=lambda *_: None, autocast=False)
    return layer(inputs, mask=mask)
