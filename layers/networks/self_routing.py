"""Self-routing: the pose of a capsule decides where the capsule is sent.

There is neither agreement nor iteration. Source: T. Hahn, M. Pyeon, G. Kim,
"Self-Routing Capsule Networks" (NeurIPS 2019), and the authors' code, whose
network for smallNORB is here, too.
"""

import math
from typing import Any

import keras
from keras import ops

from ..base_layers import Pair, Shape, Tensor, batch_normalization, registered
from ..votes import linear_votes
from ..windows import PoseLayer, WindowLayer, pair_specs
from .base import Tensors, convolution_block, network
from .matrix_capsule import pose_tensors

# Below the rounding error of a sum of activations.
_EPSILON = 1e-12


@registered
class SelfRoutingCapsules(PoseLayer, WindowLayer):
    """Convolutional capsules or class capsules with self-routing.

    Child i has the pose u_i and the activation a_i. Each parent j gets

      c_ij = softmax of w_ij . u_i + b_ij, over the O types j at one position
      a_j = (sum over i of a_i c_ij) / (sum over i of a_i)
      u_j = (sum over i of a_i c_ij W_ij u_i) / (sum over i of a_i c_ij)

    The biases b_ij are in the authors' code, not in the paper. Padding has
    activation 0. Poses u_j are batch-normalized, separately per type and atom.

    Weights, for windows of K children with `a` atoms each: `routing_weights` w
    [K, a, O] and `routing_biases` b [K, O], both initially 0; `pose_weights` W
    [K, a, O * d], initially uniform; scale and shift [O * d] of normalization.

    Args:
      num_capsules: int, O, number of parent types.
      num_atoms: int, d, atoms of a parent's pose. None for class capsules: d is
        then 1, and the pose holds the activation.
      kernel_size, strides, padding: see `WindowLayer`.

    Input, output: see `WindowLayer`, with A = d. Activations sum to 1 over O.
    """

    arguments = (*WindowLayer.arguments, "num_atoms")

    def __init__(
        self,
        num_capsules: int,
        num_atoms: int | None = None,
        kernel_size: int | None = None,
        strides: int = 1,
        padding: str = "VALID",
        **kwargs: Any,
    ):
        window = kernel_size, strides, padding
        super().__init__(num_capsules, *window, **kwargs)
        self.num_atoms = num_atoms

    def build(self, input_shape: Shape) -> None:
        self.input_spec = pair_specs(input_shape)
        *_, types, atoms = input_shape[0]
        children = math.prod(self.window(input_shape[0]).shape) * types
        outputs = self.num_capsules
        self.routing_weights = self.add_weight(
            (children, atoms, outputs), "zeros", name="routing_weights"
        )
        self.routing_biases = self.add_weight(
            (children, outputs), "zeros", name="routing_biases"
        )
        if self.num_atoms:
            limit = math.sqrt(6 / (atoms * outputs * self.num_atoms))
            self.pose_weights = self.add_weight(
                (children, atoms, outputs * self.num_atoms),
                keras.initializers.RandomUniform(-limit, limit),
                name="pose_weights",
            )
            options = {"dtype": "float32", "trainable": self.trainable}
            self.norm = batch_normalization("norm", **options)
            self.norm.build((None, outputs * self.num_atoms))

    def _route(self, inputs):
        """Children u [N, K, a] and a [N, K, 1] of N parents, c [N, K, O]."""
        poses, activations = map(self.window(inputs[0].shape).patches, inputs)
        children, atoms, _ = self.routing_weights.shape
        poses = ops.cast(poses, self.compute_dtype)
        poses = ops.reshape(poses, (-1, children, atoms))
        weights = ops.cast(self.routing_weights, self.compute_dtype)
        logits = ops.matmul(ops.swapaxes(poses, 0, 1), weights)  # [K, N, O]
        logits = ops.cast(ops.swapaxes(logits, 0, 1), "float32")
        biases = ops.cast(self.routing_biases, "float32")
        # `ops.softmax` warns of a single parent.
        couplings = ops.exp(ops.log_softmax(logits + biases, axis=-1))
        activations = ops.reshape(activations, (-1, children, 1))
        return poses, ops.cast(activations, "float32"), couplings

    def couplings(self, inputs: Pair) -> Tensor:
        """Couplings c: float32 [1, B * h * w, K, O]; axis 0: iterations."""
        return self._route(inputs)[2][None]

    def call(self, inputs: Pair, training: bool | None = None) -> Pair:
        poses, activations, couplings = self._route(inputs)
        shares = activations * couplings
        sums = ops.sum(shares, axis=1)
        parents = sums / (ops.sum(activations, axis=1) + _EPSILON)
        shape, _ = self.compute_output_shape(tuple(x.shape for x in inputs))
        parents = ops.reshape(parents, (-1, *shape[1:-1]))
        if not self.num_atoms:
            return ops.cast(parents[..., None], self.compute_dtype), parents
        shares = shares / (sums[:, None] + _EPSILON)
        weights = ops.cast(self.pose_weights, self.compute_dtype)
        votes = linear_votes(poses, weights, self.num_capsules)
        shares = ops.moveaxis(shares, -1, votes.outputs_axis)
        poses = ops.reshape(votes.weighted_sum(shares), (-1, weights.shape[-1]))
        poses = self.norm(poses, training=training)
        poses = ops.cast(poses, self.compute_dtype)
        return ops.reshape(poses, (-1, *shape[1:])), parents

    def multiply_adds(self, input_shape: Shape) -> int:
        positions = math.prod(self.grid(input_shape[0]))
        numbers = self.num_capsules * (1 + (self.num_atoms or 0))
        return positions * math.prod(self.routing_weights.shape[:2]) * numbers


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
