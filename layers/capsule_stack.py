"""The layers of the paper's network, from images to class capsules."""

from typing import Literal

import keras
from keras import ops

from .capsule import Capsule, ConvSlimCapsule
from .convolution import Conv2D
from .initializers import reference_initializers
from .routing import RoutingRule
from .tensors import Tensor

# Figure 1 of the paper.
KERNEL_SIZE = 9
PRIMARY_STRIDES = 2


class CapsuleStack:
    """The layers from images to class capsules: figure 1 of the paper.

    They are a convolution with relu, convolutional primary capsules with stride
    2 and one routing iteration, and one capsule per class. The stack is not a
    layer: assign its layers to a `keras.Model`, so that it finds their weights.

    Args:
      num_classes: int, O.
      conv_channels: int, channels of the convolution.
      num_prime_capsules: int, types of primary capsules.
      primary_atoms, class_atoms: int, atoms of primary and class capsules.
      num_routing: int, routing iterations of the class capsules.
      leaky: bool, whether couplings come from `leaky_softmax`.
      rule: routing rule of the class capsules, see `Capsule`.
      padding: "VALID" or "SAME", of both convolutions. "VALID" needs images of
        at least 17x17 pixels for 9x9 kernels.
      kernel_size: int, height and width of the kernels of both convolutions.
      class_bias: bool, whether the class capsules have biases.
      dtype: dtype or policy of the layers, as for `keras.layers.Layer`.

    Attributes:
      conv1, conv_capsule1, flatten, capsule2: the layers, in their order.
    """

    def __init__(
        self,
        num_classes: int,
        *,
        conv_channels: int = 256,
        num_prime_capsules: int = 32,
        primary_atoms: int = 8,
        class_atoms: int = 16,
        num_routing: int = 3,
        leaky: bool = False,
        rule: RoutingRule | dict | None = None,
        padding: Literal["VALID", "SAME"] = "VALID",
        kernel_size: int = KERNEL_SIZE,
        class_bias: bool = True,
        dtype: str | keras.DTypePolicy | None = None,
    ):
        self.conv1 = Conv2D(
            conv_channels,
            kernel_size,
            padding=padding.lower(),
            activation="relu",
            data_format="channels_last",
            dtype=dtype,
            name="conv1",
            **reference_initializers(stddev=0.05),
        )
        self.conv_capsule1 = ConvSlimCapsule(
            num_prime_capsules,
            primary_atoms,
            kernel_size,
            strides=PRIMARY_STRIDES,
            padding=padding,
            num_routing=1,
            leaky=leaky,
            dtype=dtype,
            name="conv_capsule1",
        )
        self.flatten = keras.layers.Reshape((-1, primary_atoms), dtype=dtype)
        self.capsule2 = Capsule(
            num_classes,
            class_atoms,
            num_routing=num_routing,
            leaky=leaky,
            rule=rule,
            use_bias=class_bias,
            dtype=dtype,
            name="capsule2",
        )

    def activations(self, images: Tensor) -> dict[str, Tensor]:
        """Outputs of three layers for images [B, H, W, C], pixels in [0, 1].

        Returns:
          dict: conv1 [B, h, w, conv_channels]; conv_capsule1 [B, h', w',
          num_prime_capsules, primary_atoms]; capsule2 [B, O, A].
        """
        hidden = self.conv1(images)
        # The channels of a position are the atoms of one input capsule.
        primary = self.conv_capsule1(ops.expand_dims(hidden, -2))
        # [B, h', w', types, atoms] -> [B, h' * w' * types, atoms]
        capsules = self.capsule2(self.flatten(primary))
        return {"conv1": hidden, "conv_capsule1": primary, "capsule2": capsules}
