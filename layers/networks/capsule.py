"""The network of Sabour, Frosst, Hinton 2017 ("the paper", see routing.py)."""

from typing import Literal

import keras
from keras import ops

from ..base_layers import reference_initializers
from ..capsule import Capsule, ConvSlimCapsule
from ..fast_convolution import Conv2D
from ..routing import RoutingRule
from .base import Tensor, Tensors, network

# Figure 1 of the paper.
KERNEL_SIZE = 9
PRIMARY_STRIDES = 2


@network()
def capsule(
    images: Tensor,
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
) -> Tensors:
    """Convolution, primary capsules, class capsules: figure 1 of the paper.

    A convolution with relu; convolutional primary capsules with stride 2 and
    one routing iteration; one capsule per class. Logits are their lengths.

    Args:
      conv_channels: int, channels of the convolution.
      num_prime_capsules: int, types of primary capsules.
      primary_atoms: int, atoms of a primary capsule.
      class_atoms: int, atoms of a class capsule.
      num_routing: int, routing iterations of the class capsules.
      leaky: bool, leaky softmax: an input capsule may be routed nowhere.
      rule: `RoutingRule` of the class capsules, see `Capsule`.
      padding: str, padding of the convolutions.
      kernel_size: int, side of both convolutions' kernels.
      class_bias: bool, whether class capsules have biases.
    """
    hidden = Conv2D(
        conv_channels,
        kernel_size,
        padding=padding.lower(),
        activation="relu",
        data_format="channels_last",
        name="conv1",
        **reference_initializers(stddev=0.05),
    )(images)
    # The channels of a position are the atoms of one input capsule.
    primary = ConvSlimCapsule(
        num_prime_capsules,
        primary_atoms,
        kernel_size,
        strides=PRIMARY_STRIDES,
        padding=padding,
        num_routing=1,
        leaky=leaky,
        name="conv_capsule1",
    )(ops.expand_dims(hidden, -2))
    # [B, h, w, types, atoms] -> [B, h * w * types, atoms]
    flat = keras.layers.Reshape((-1, primary_atoms))(primary)
    classes = Capsule(
        num_classes,
        class_atoms,
        num_routing=num_routing,
        leaky=leaky,
        rule=rule,
        use_bias=class_bias,
        name="capsule2",
    )(flat)
    return {
        "conv1": hidden,
        "conv_capsule1": primary,
        "capsule2": classes,
        "capsules": classes,
    }
