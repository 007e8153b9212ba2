"""Matrix capsules with inverted dot-product attention routing.

Source: see layers/inverted_attention.py. The source's networks are for CIFAR.
This one has as many channels and types as the smaller matrix capsule network of
Hinton, Sabour, Frosst 2018.
"""

import keras

from ..inverted_attention import InvertedAttentionCapsules, route_together
from ..matrix_votes import POSE_ENTRIES
from .base import Tensor, Tensors, network


@network("cross-entropy")
def inverted_attention(
    images: Tensor,
    num_classes: int,
    *,
    conv_channels: int = 64,
    primary_types: int = 8,
    first_types: int = 16,
    second_types: int = 16,
    num_routing: int = 2,
) -> Tensors:
    """A convolution and four layers of capsules.

    The convolution is 3x3 with stride 2 and relu. Primary capsules are a linear
    map of its channels, layer-normalized. Two layers of 3x3 capsules follow,
    with strides 2 and 1. A linear map shared by all class capsules gives one
    score for each; "logits" are the softmax of the scores.

    Args:
      conv_channels: int, channels of the convolution.
      primary_types: int, types of primary capsules.
      first_types: int, types of the first routed capsules.
      second_types: int, types of the second routed capsules.
      num_routing: int, routing iterations; the first has equal couplings.
    """
    # As in PyTorch: uniform in +-1 / sqrt(inputs).
    uniform = keras.initializers.VarianceScaling(1 / 3, "fan_in", "uniform")
    limit = (9 * images.shape[-1]) ** -0.5
    hidden = keras.layers.Conv2D(
        conv_channels,
        kernel_size=3,
        strides=2,
        padding="same",
        activation="relu",
        kernel_initializer=uniform,
        bias_initializer=keras.initializers.RandomUniform(-limit, limit),
        name="conv1",
    )(images)
    x = keras.layers.Dense(
        primary_types * POSE_ENTRIES,
        use_bias=False,
        kernel_initializer=uniform,
        name="primary",
    )(hidden)
    x = keras.layers.Reshape((*x.shape[1:3], primary_types, POSE_ENTRIES))(x)
    primary = keras.layers.LayerNormalization(epsilon=1e-5, name="norm")(x)
    routed = [
        InvertedAttentionCapsules(first_types, 3, 2, name="first"),
        InvertedAttentionCapsules(second_types, 3, 1, name="second"),
        InvertedAttentionCapsules(num_classes, name="classes"),
    ]
    *_, poses = route_together(routed, primary, num_routing)
    score = keras.layers.Dense(1, kernel_initializer=uniform, name="logit")
    scores = keras.layers.Reshape((num_classes,))(score(poses[-1]))
    names = "primary", *(layer.name for layer in routed)
    return {
        "conv1": hidden,
        **dict(zip(names, poses, strict=True)),
        "logits": keras.layers.Softmax(dtype="float32")(scores),
        "capsules": poses[-1],
    }
