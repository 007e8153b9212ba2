"""The decoder that redraws an image from one class capsule."""

import keras
from keras import ops

from .capsule import require_axes, require_bool, require_positive
from .utils import Tensor, reference_initializers

# The paper's section 4.1: fully connected layers of 512 and 1024 units before
# the pixels.
HIDDEN_UNITS = (512, 1024)


def mask_capsules(capsules: Tensor, labels: Tensor) -> Tensor:
    """Zeroes all capsules but the labelled one of each example.

    Args:
      capsules: tensor [B, O, A].
      labels: integer tensor [B], the output capsule to keep.

    Returns:
      Tensor [B, O, A] of the type of `capsules`.
    """
    capsules = ops.convert_to_tensor(capsules)
    kept = ops.one_hot(labels, capsules.shape[1], dtype=capsules.dtype)
    return capsules * ops.expand_dims(kept, -1)


@keras.saving.register_keras_serializable(package="capsules")
class Reconstruction(keras.layers.Layer):
    """Masked decoder: the labelled capsule alone, through three dense layers.

    Capsules of all other classes are zeroed, then Dense 512 relu, Dense 1024
    relu and Dense height * width * depth sigmoid (the paper's section 4.1,
    figure 2). With two digits the same layer is called once for each label.

    Args:
      height: int, image height in pixels.
      width: int, image width in pixels.
      depth: int, image channels.
      he_normal: bool, whether weights begin as those of Efficient-CapsNet,
        he-normal and before the sigmoid Glorot normal, with biases of 0; else
        as the reference's.
      **kwargs: of `keras.layers.Layer`.

    Call arguments:
      capsules: tensor [B, O, A].
      labels: integer tensor [B], the class to redraw.

    Output shape: [B, height, width, depth], values in [0, 1].

    Raises:
      ValueError: for sizes that are not positive integers or another type of
        `he_normal`, and at build if the capsules do not have three axes of
        which the last two are known.
    """

    def __init__(
        self,
        height: int,
        width: int,
        depth: int,
        he_normal: bool = False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        require_positive(height=height, width=width, depth=depth)
        require_bool(he_normal=he_normal)
        self.height = height
        self.width = width
        self.depth = depth
        self.he_normal = he_normal
        activations = ("relu", "relu", "sigmoid")
        units = (*HIDDEN_UNITS, height * width * depth)
        self.dense = [
            keras.layers.Dense(
                size,
                activation=activation,
                **_initial_weights(activation, he_normal),
                dtype=self.dtype_policy,
                name=f"recons_{number}",
            )
            for number, (size, activation) in enumerate(
                zip(units, activations, strict=True), start=1
            )
        ]

    def build(self, capsules_shape):
        require_axes(self, capsules_shape, "capsules", "atoms")
        units = capsules_shape[1] * capsules_shape[2]
        for layer in self.dense:
            layer.build((None, units))
            units = layer.units

    def call(self, capsules, labels):
        masked = mask_capsules(capsules, labels)
        pixels = ops.reshape(
            masked, (-1, capsules.shape[1] * capsules.shape[2])
        )
        for layer in self.dense:
            pixels = layer(pixels)
        return ops.reshape(pixels, (-1, self.height, self.width, self.depth))

    def compute_output_shape(self, capsules_shape, labels_shape=None):
        return (capsules_shape[0], self.height, self.width, self.depth)

    def get_config(self):
        return {
            **super().get_config(),
            "height": self.height,
            "width": self.width,
            "depth": self.depth,
            "he_normal": self.he_normal,
        }


def _initial_weights(activation, he_normal):
    if not he_normal:
        return reference_initializers()
    relu = activation == "relu"
    return {"kernel_initializer": "he_normal" if relu else "glorot_normal"}
