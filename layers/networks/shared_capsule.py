"""Su's capsule network, whose positions share weights; see pooling.py."""

from typing import Literal

import keras

from ..capsule import Capsule
from ..routing import RoutingRule
from .base import Tensor, Tensors, network
from .pooling import four_convolutions


@network("`margin_loss` with absent_weight=0.25", "0.001", 1e-7)
def shared_capsule(
    images: Tensor,
    num_classes: int,
    *,
    first_channels: int = 64,
    second_channels: int = 128,
    class_atoms: int = 16,
    num_routing: int = 3,
    share_weights: bool = True,
    logits: Literal["replace", "add"] = "replace",
    compare: Literal["direction", "squashed"] = "direction",
    squash_constant: float = 0.5,
) -> Tensors:
    """Four convolutions, then class capsules, whose lengths are the logits.

    Each position of the last convolution is one input capsule. Its atoms are
    the channels; it is not squashed.

    Args:
      first_channels: int, channels of the first two convolutions.
      second_channels: int, channels of the other two convolutions.
      class_atoms: int, atoms of a class capsule.
      num_routing: int, routing iterations.
      share_weights: bool, whether positions share weights; if not, image size
        is fixed.
      logits: str, whether an iteration replaces the logits of the couplings, as
        Su does, or adds to them, as the paper does.
      compare: str, what votes are compared with: the direction of their sum
        (Su's later routing) or their squashed sum (the paper).
      squash_constant: float, k of the squashed length n^2 / (k + n^2); 1 in the
        paper.
    """
    outputs = four_convolutions(images, first_channels, second_channels)
    x = keras.layers.Reshape((-1, second_channels))(outputs["conv4"])
    outputs["capsule"] = outputs["capsules"] = Capsule(
        num_classes,
        class_atoms,
        num_routing=num_routing,
        share_weights=share_weights,
        use_bias=False,
        kernel_initializer="glorot_uniform",
        rule=RoutingRule(
            logits=logits,
            compare=compare,
            squash_constant=squash_constant,
            squash_epsilon=1e-7,  # Keras' epsilon, in Su's squash
        ),
        name="capsule",
    )(x)
    return outputs
