"""Efficient-CapsNet (Mazzia and others 2021), see layers/self_attention.py."""

from typing import Literal

import keras

from ..base_layers import batch_normalization
from ..self_attention import DepthwiseCapsule, SelfAttentionCapsule
from .base import Tensor, Tensors, network


def layout(height, width):
    """Returns (kernel sizes, strides, kernel size of the primary capsules).

    The first convolution is 5x5, or 7x7 with stride 2 for images of at least
    48x48. Three 3x3 convolutions follow. The last 1, 2 or 3 of these have
    stride 2: the fewest that make the shorter side of the last map at most 9.
    There is no padding. The primary capsules' kernel has the size of this map.
    After a 5x5 convolution, this kernel's sides are reduced by 1 if even: to
    5x5 for MultiMNIST's 6x6 map. The authors' networks follow these rules.
    """
    is_large = min(height, width) >= 48
    kernels = (7 if is_large else 5, 3, 3, 3)
    for num_strided in (1, 2, 3):
        rest = (1,) * (3 - num_strided) + (2,) * num_strided
        strides = (2 if is_large else 1, *rest)
        sides = [height, width]
        for kernel, stride in zip(kernels, strides, strict=True):
            sides = [(side - kernel) // stride + 1 for side in sides]
        if min(sides) <= 9:
            break
    if not is_large:
        sides = [side - (side + 1) % 2 for side in sides]
    return kernels, strides, tuple(sides)


@network("`margin_loss`", "max(5e-5, 5e-4 * 0.97 ** (step // 3750))", 1e-7)
def efficient_capsule(
    images: Tensor,
    num_classes: int,
    *,
    first_channels: int = 32,
    middle_channels: int = 64,
    num_prime_capsules: int = 16,
    primary_atoms: int = 8,
    class_atoms: int = 16,
    normalization: Literal["batch", "instance"] = "batch",
) -> Tensors:
    """Four convolutions, primary capsules, self-attention.

    Normalization follows each convolution; `layout` gives all kernel sizes. A
    depthwise convolution at a single position makes the primary capsules.
    Self-attention routes them to one capsule per class. Logits are the lengths
    |v| of these capsules; the authors' logits are sqrt(|v|^2 + 1e-7). Images
    have at least 11x11 pixels.

    Args:
      first_channels: int, channels of the first convolution.
      middle_channels: int, channels of the next two convolutions.
      num_prime_capsules: int, number of primary capsules.
      primary_atoms: int, atoms of a primary capsule.
      class_atoms: int, atoms of a class capsule.
      normalization: str, what follows each convolution: batch normalization
        after relu, or instance normalization after leaky relu, as for
        smallNORB.
    """
    kernels, strides, primary_size = layout(*images.shape[1:3])
    last_channels = num_prime_capsules * primary_atoms
    channels = first_channels, middle_channels, middle_channels, last_channels
    is_batch = normalization == "batch"
    outputs, x = {}, images
    for i in range(4):
        x = outputs[f"conv{i + 1}"] = keras.layers.Conv2D(
            channels[i],
            kernels[i],
            strides=strides[i],
            activation="relu" if is_batch else keras.layers.LeakyReLU(0.3),
            kernel_initializer="he_normal",
            data_format="channels_last",
            name=f"conv{i + 1}",
        )(x)
        norm = f"norm{i + 1}"
        if is_batch:
            x = batch_normalization(norm, momentum=0.99, epsilon=1e-3)(x)
        else:  # group normalization with a group for each channel
            x = keras.layers.GroupNormalization(-1, name=norm)(x)
    x = outputs["primary_capsule"] = DepthwiseCapsule(
        primary_atoms, primary_size, name="primary_capsule"
    )(x)
    layer = SelfAttentionCapsule(num_classes, class_atoms, name="class_capsule")
    outputs["class_capsule"] = outputs["capsules"] = layer(x)
    return outputs
