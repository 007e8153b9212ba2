"""The paper's decoder."""

from typing import Any

import keras
from keras import ops

from .base_layers import (
    Layer,
    Names,
    Shape,
    Tensor,
    reference_initializers,
    registered,
    require_shape,
)


def mask_capsules(capsules: Tensor, labels: Tensor) -> Tensor:
    """Sets all capsules [B, O, A] to zero except those of the labels.

    Labels are classes [B] or k-hot [B, O]; other shapes raise ValueError.
    """
    capsules, labels = map(ops.convert_to_tensor, (capsules, labels))
    is_k_hot = len(labels.shape) == 2
    require_shape("labels", labels, capsules.shape[: 1 + is_k_hot])
    if is_k_hot:
        mask = ops.cast(labels, capsules.dtype)
    else:
        labels = ops.cast(labels, "int32")
        mask = ops.one_hot(labels, capsules.shape[1], dtype=capsules.dtype)
    return capsules * ops.expand_dims(mask, -1)


class Decoder(Layer):
    """Base of decoders, which map the capsule of a label to an image.

    Args:
      height, width, depth: int, rows, columns and channels of the images.

    Call arguments:
      capsules: tensor [B, O, A].
      labels: tensor [B], the class to reconstruct, or k-hot [B, O].

    Output shape: [B, height, width, depth].
    """

    arguments: Names = ("height", "width", "depth")

    def __init__(self, height: int, width: int, depth: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.height, self.width, self.depth = height, width, depth
        self.input_spec = keras.layers.InputSpec(ndim=3)

    def compute_output_shape(
        self, capsules_shape: Shape, labels_shape: Shape | None = None
    ) -> Shape:
        return (capsules_shape[0], self.height, self.width, self.depth)


@registered
class Reconstruction(Decoder):
    """The paper's decoder: three dense layers applied to the labeled capsule.

    All other capsules are set to zero. The layers have 512 units with relu,
    1024 with relu, and height * width * depth with sigmoid (section 4.1 and
    figure 2 of the paper). For two digits, call the decoder once per label.

    Args:
      height, width, depth: see `Decoder`.
      he_normal: bool, whether to initialize as Efficient-CapsNet: he-normal
        kernels, Glorot-normal in the last layer, biases 0.

    Call and output: see `Decoder`. Output pixels are in [0, 1].
    """

    arguments = (*Decoder.arguments, "he_normal")

    def __init__(
        self,
        height: int,
        width: int,
        depth: int,
        he_normal: bool = False,
        **kwargs: Any,
    ):
        dense = kwargs.pop("dense", None)  # of `get_config`
        super().__init__(height, width, depth, **kwargs)
        self.he_normal = he_normal
        units = (512, 1024, height * width * depth)
        activations = ("relu", "relu", "sigmoid")
        self.dense: list[keras.layers.Dense] = []
        if dense:
            self.dense.extend(map(keras.layers.Dense.from_config, dense))
            return
        for size, activation in zip(units, activations, strict=True):
            initializers = reference_initializers()
            if he_normal:
                name = "he_normal" if activation == "relu" else "glorot_normal"
                initializers = {"kernel_initializer": name}
            layer = keras.layers.Dense(
                size,
                activation=activation,
                **initializers,
                dtype=self.dtype_policy,
                name=f"recons_{len(self.dense) + 1}",
            )
            self.dense.append(layer)

    def build(self, capsules_shape: Shape, labels_shape: Any = None) -> None:
        units = capsules_shape[1] * capsules_shape[2]
        for layer in self.dense:
            layer.build((None, units))
            units = layer.units

    def call(self, capsules: Tensor, labels: Tensor) -> Tensor:
        capsules = ops.cast(capsules, self.compute_dtype)
        masked = mask_capsules(capsules, labels)
        _, num_capsules, num_atoms = capsules.shape
        pixels = ops.reshape(masked, (-1, num_capsules * num_atoms))
        for layer in self.dense:
            pixels = layer(pixels)
        return ops.reshape(pixels, (-1, self.height, self.width, self.depth))

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            # These keep adapters, quantization and frozen weights.
            "dense": [layer.get_config() for layer in self.dense],
        }
