"""Matrix capsules with inverted dot-product attention routing; a network.

Source: Y.-H. H. Tsai, N. Srivastava, H. Goh, R. Salakhutdinov, "Capsules with
Inverted Dot-Product Attention Routing", https://arxiv.org/abs/2002.04764 (ICLR
2020). Unlike here, their first code mixes pose entries of several positions.
The source's networks are for CIFAR. The one here has as many channels and types
as the smaller matrix capsule network of Hinton, Sabour, Frosst 2018.
"""

import math

import keras
from keras import ops

from ..base_layers import Shape, Tensor, registered, require_shape
from ..matrix_votes import (
    POSE_ENTRIES,
    VotingLayer,
    over_children,
    over_entries,
)
from ..routing import softmax
from .base import Tensors, network


def route_together(layers, primary, num_routing):
    """Routes a stack of `InvertedAttentionCapsules`.

    The first iteration goes from layer to layer. Each further iteration updates
    all layers at once, from the poses of the previous iteration.

    Returns, for each iteration, the list [primary, poses of layer 1, ...].
    """
    poses = [primary]
    for layer in layers:
        poses.append(layer(poses[-1]))
    history = [poses]
    for _ in range(1, num_routing):
        edges = zip(layers, poses[:-1], poses[1:], strict=True)
        poses = [primary, *(layer(*old) for layer, *old in edges)]
        history.append(poses)
    return history


@registered
class InvertedAttentionCapsules(VotingLayer):
    """Matrix capsules without activations. A call updates parent poses once.

    Child i with the pose M_i votes V_ij = M_i W_ij for parent j. The new poses
    p' of the parents are

      c_ij = softmax of <p_j, V_ij> / 4, over the O types j at one position
      p'_j = LayerNorm(sum of c_ij V_ij over all i in the window of j)

    where p_j is the pose of parent j before the update. In the first update
    c_ij = 1 / O. `route_together` routes several of these layers.

    Weights: `weights` [k, k, I, O, 4, 4], initially normal with standard
    deviation sqrt(O / (4 k k I)); `gamma` and `beta` [16] of the normalization
    (epsilon 1e-5), initially 1 and 0.

    Args, k, O: see `WindowLayer`. Children in the padding cast votes of zero.

    Call arguments:
      children: poses M [B, H, W, I, 16], matrices row by row.
      parents: poses p [B, h, w, O, 16]; None in the first update.

    Output: poses p' [B, h, w, O, 16].
    """

    def build(self, input_shape: Shape) -> None:
        super().build(input_shape)
        self.norm = keras.layers.LayerNormalization(
            epsilon=1e-5, dtype="float32", name="norm", trainable=self.trainable
        )
        self.norm.build(self.compute_output_shape(input_shape))

    def _kernel_initializer(self, shape):
        *field, types, rows, _ = shape
        stddev = math.sqrt(types / (rows * math.prod(field)))
        return keras.initializers.RandomNormal(stddev=stddev)

    def call(self, children: Tensor, parents: Tensor | None = None) -> Tensor:
        sums, _ = self._update(children, parents)
        shape = self.compute_output_shape(children.shape)
        poses = self.norm(ops.reshape(sums, (-1, *shape[1:])))
        return ops.cast(poses, self.compute_dtype)

    def couplings(
        self, children: Tensor, parents: Tensor | None = None
    ) -> Tensor:
        """Couplings c, float32 [B, h * w, K, O], for K children per window."""
        return self._update(children, parents)[1]

    def _update(self, children, parents):
        """Sums of votes [B, n, O, 16] and couplings [B, n, K, O]."""
        examples = []
        if parents is not None:
            shape = self.compute_output_shape(children.shape)
            require_shape("parents", parents, shape)
            examples = [ops.cast(parents, "float32")]
        return self._by_blocks(self._update_block, children, *examples)

    def _update_block(self, children, *arguments):
        *parents, kernel = arguments
        votes = self._votes(children, kernel)  # [O, N, 16, K]
        agreement = ops.zeros_like(votes[:, :, 0])
        if parents:
            shape = (-1, self.num_capsules, POSE_ENTRIES)
            poses = ops.swapaxes(ops.reshape(parents[0], shape), 0, 1)
            agreement = over_entries(votes, poses / 4)
        couplings = softmax(agreement, axis=0)
        sums = self._by_image(over_children(votes, couplings))
        return ops.swapaxes(sums, -1, -2), self._by_image(couplings)

    def compute_output_shape(
        self, children_shape: Shape, parents_shape: Shape | None = None
    ) -> Shape:
        grid = self.grid(children_shape)
        return (children_shape[0], *grid, self.num_capsules, POSE_ENTRIES)


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
