"""The network of the authors of self-routing, for smallNORB."""

import keras
from keras import ops

from ..self_routing import SelfRoutingCapsules
from .base import Tensor, Tensors, convolution_block, network
from .matrix_capsule import pose_tensors

# Channels, in units of `channels`, and strides of the convolutions.
CONVOLUTIONS = ((1, 1), (2, 2), (2, 1), (4, 2), (4, 1), (8, 2))


@network("cross-entropy, weight decay 1e-4", "0.003 * 0.96 ** (step / 2000)")
def self_routing(
    images: Tensor,
    num_classes: int,
    *,
    channels: int = 16,
    types: int = 16,
    atoms: int = 16,
    depth: int = 1,
) -> Tensors:
    """Seven 3x3 convolutions, then `depth` layers of self-routing capsules.

    Batch normalization follows each convolution; relu follows all but the last.
    The last convolution gives poses and activation logits of primary capsules.
    The last capsule layer has the class capsules, whose activations sum to 1;
    the others are 3x3. Primary and 3x3 capsules have `types` types.

    Args:
      channels: int, channels of the first convolution.
      types: int, types of capsules; 32 in the authors' code.
      atoms: int, atoms of a pose.
      depth: int, layers of capsules after the primary capsules.
    """
    outputs, x = {}, images
    for i, (multiple, strides) in enumerate(CONVOLUTIONS, 1):
        # The authors pad both sides; SAME would pad only the end of even sizes.
        x = keras.layers.ZeroPadding2D(1)(x)
        block = convolution_block(multiple * channels, 3, strides, f"conv{i}")
        x = outputs[block.name] = block(x)
    x = keras.layers.ZeroPadding2D(1)(x)
    primary = convolution_block(
        types * (atoms + 1), 3, 1, "primary", relu=False
    )
    poses, logits = ops.split(primary(x), [types * atoms], axis=-1)
    poses = keras.layers.Reshape((*poses.shape[1:3], types, atoms))(poses)
    activations = ops.sigmoid(ops.cast(logits, "float32"))
    routed = [
        SelfRoutingCapsules(types, atoms, 3, padding="SAME", name=f"routed{i}")
        for i in range(1, depth)
    ]
    routed.append(SelfRoutingCapsules(num_classes, name="class_capsules"))
    return {**outputs, **pose_tensors((poses, activations), routed)}
