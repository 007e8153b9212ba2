"""Matrix capsules with variational Bayes routing, and their network.

A Bayesian mixture of normal distributions is fitted to the votes V. Priors keep
variances from collapsing. Child i has the activation a_i; R_ij is the share of
i assigned to parent j. There are O parent types. psi is the digamma function,
sum_h is over the 16 pose entries h, a plain sum is over the children of j:

  r_ij = R_ij a_i,  R_j = sum r_ij,  kappa_j = 1 + R_j,  nu_j = 17 + R_j
  m_j = sum r_ij V_ij / kappa_j,  s_j = 1 + m_j^2 + sum r_ij (V_ij - m_j)^2
  L_j = sum over d = 0..15 of psi((nu_j - d) / 2) + 16 ln 2 - sum_h ln s_j^h
  P_j = psi(kappa_j) - psi(sum of kappa over the types at the position of j)
  ln rho_ij = P_j + L_j / 2 - 8 / kappa_j
              - nu_j / 2 sum_h (V_ij^h - m_j^h)^2 / s_j^h
  score_j = -exp(P_j) (8 (1 + ln 2 pi) - L_j / 2)

R_ij starts at 1 / O and is then the softmax of ln rho_ij over all parents of i.
After the last iteration m and score are batch-normalized, each type by itself.
Poses are the normalized m; activations are sigmoids of the normalized scores.

Source: F. Ribeiro, G. Leontidis, S. Kollias, "Capsule routing via variational
Bayes", AAAI 2020, https://arxiv.org/abs/1905.11455; score_j: authors' code.
"""

import math
from typing import Any, Literal

import keras
import numpy as np
from keras import ops

from ..base_layers import Pair, Shape, Tensor, batch_normalization, registered
from ..matrix_votes import POSE_ENTRIES
from ..mixture_routing import MixtureLayer, PrimaryPoseLayer, fit_mixture
from ..windows import PoseLayer
from .base import Tensors, convolution_block, network
from .matrix_capsule import CONVOLUTION, pose_tensors


def digamma(x: Tensor) -> Tensor:
    """The digamma function psi of x >= 1, with an error below 4e-8."""
    q = x * (x + 5)
    # The sum of 1 / (x + i), i = 0..5, as a single quotient.
    terms = (2 * x + 5) * (3 * q * q + 20 * q + 24) / (q * (q + 4) * (q + 6))
    return _series(x + 6) - terms


def _series(x):
    u = 1 / ops.square(x)
    return ops.log(x) - 0.5 / x - u * (1 / 12 - u / 120)


def vb_fit(total, mean, scatter, iteration):
    """The argument `fit` of `fit_mixture` for variational Bayes routing."""
    kappa = total + 1  # [O, N, 1]
    scale = 1 + ops.square(mean) + scatter
    # Only one psi of the 16 is left, since psi(x + 1) = psi(x) + 1 / x and
    # psi(x) + psi(x + 1/2) = 2 psi(2 x) - 2 ln 2.
    log_precision = POSE_ENTRIES * _series(total + 16)
    for k in range(7):
        product = (total + 2 * k + 2) * (total + 2 * k + 3)
        log_precision -= 2 * (k + 1) * (2 * total + 4 * k + 5) / product
    log_precision -= ops.sum(ops.log(scale), axis=-1, keepdims=True)
    log_share = digamma(kappa) - digamma(ops.sum(kappa, axis=0, keepdims=True))
    terms = log_share + 0.5 * log_precision - 8 / kappa
    entropy = 8 * (1 + math.log(2 * math.pi)) - 0.5 * log_precision
    scores = -ops.exp(log_share) * entropy
    return 0.5 * (kappa + 16) / scale, terms[..., 0], scores[..., 0]


class _Normalized(PoseLayer):
    """Base of layers that normalize `_capsules(inputs)`: poses and logits."""

    def _build_normalizations(self, input_shape, **options):
        options |= {"dtype": "float32", "trainable": self.trainable}
        poses_shape, shape = self.compute_output_shape(input_shape)
        self.of_poses = batch_normalization("of_poses", -2, **options)
        self.of_poses.build(poses_shape)
        self.of_logits = batch_normalization("of_logits", **options)
        self.of_logits.build(shape)

    def call(self, inputs: Any, training: bool | None = None) -> Pair:
        poses, logits = self._capsules(inputs)
        poses = self.of_poses(poses, training=training)
        logits = self.of_logits(logits, training=training)
        return ops.cast(poses, self.compute_dtype), ops.sigmoid(logits)


@registered
class PrimaryVBCapsules(_Normalized, PrimaryPoseLayer):
    """Primary capsules without biases, each type batch-normalized by itself.

    Weights: `kernel` [C, I * 17], initially Glorot-uniform; scales, shifts [I]
    of poses and activation logits. Args, shapes: see `PrimaryMatrixCapsules`.
    """

    def build(self, input_shape: Shape) -> None:
        super().build(input_shape)
        shape = input_shape[-1], self.num_capsules * (POSE_ENTRIES + 1)
        self.kernel = self.add_weight(shape, "glorot_uniform", name="kernel")
        self._build_normalizations(input_shape)

    def _capsules(self, inputs):
        capsules = ops.matmul(ops.cast(inputs, self.compute_dtype), self.kernel)
        shape = (-1, *inputs.shape[1:3], self.num_capsules, POSE_ENTRIES + 1)
        capsules = ops.reshape(capsules, shape)
        return capsules[..., :POSE_ENTRIES], capsules[..., POSE_ENTRIES]


class _VBRouted(_Normalized, MixtureLayer):
    def __init__(self, num_capsules, num_routing, *window, **kwargs):
        if num_routing < 1:
            raise ValueError(
                f"`num_routing` must be at least 1. Received: {num_routing}"
            )
        super().__init__(num_capsules, *window, **kwargs)
        self.num_routing = num_routing

    def build(self, input_shape: Shape) -> None:
        super().build(input_shape)
        self._build_normalizations(input_shape, center=False, scale=False)

    def _kernel_initializer(self, shape):
        *window, child_types, types, _, _ = shape
        fans = POSE_ENTRIES * math.prod(window) * (child_types + types)
        limit = math.sqrt(6 / fans)  # Glorot-uniform
        return keras.initializers.RandomUniform(-limit, limit)

    def _route_votes(self, votes, activations):
        options = self._parents(), self.num_routing
        return fit_mixture(votes, activations, vb_fit, *options, prior=1.0)


@registered
class ConvVBCapsules(_VBRouted):
    """Convolutional matrix capsules with variational Bayes routing.

    Weights: `weights` [k, k, I, O, 4, 4], initially Glorot-uniform. Input,
    output and arguments: see `ConvMatrixCapsules`.
    """

    arguments = (*_VBRouted.arguments, "num_routing")

    def __init__(
        self,
        num_capsules: int,
        kernel_size: int,
        strides: int = 1,
        padding: str = "VALID",
        num_routing: int = 3,
        **kwargs: Any,
    ):
        window = kernel_size, strides, padding
        super().__init__(num_capsules, num_routing, *window, **kwargs)


@registered
class ClassVBCapsules(_VBRouted):
    """Class capsules with variational Bayes routing.

    Weights: `weights` [I, O, 4, 4], initially Glorot-uniform. Input, output and
    arguments: see `ClassMatrixCapsules`; positions are scaled to (0, 0.1].
    """

    arguments = ("num_capsules", "num_routing", "coordinates")
    _shares_weights = True

    def __init__(
        self,
        num_capsules: int,
        num_routing: int = 3,
        coordinates: bool = True,
        **kwargs: Any,
    ):
        super().__init__(num_capsules, num_routing, **kwargs)
        self.coordinates = coordinates

    def _coordinates_along(self, size):
        return (np.arange(size) + 1) / (10 * size)


@network("`softmax_loss`", "0.001")
def vb_capsule(
    images: Tensor,
    num_classes: int,
    *,
    conv_channels: int = 64,
    primary_types: int = 8,
    first_types: int = 16,
    second_types: int = 16,
    num_routing: int = 3,
    padding: Literal["VALID", "SAME"] = "SAME",
) -> Tensors:
    """`matrix_capsule` with variational Bayes routing.

    Batch normalization follows the convolution and every layer of capsules,
    separately for each type. There are no biases. In the authors' code the
    coordinates are 0.1 everywhere, and further weights (betas) have no effect.

    Args:
      conv_channels: int, channels of the convolution.
      primary_types: int, types of primary capsules.
      first_types: int, types of the first routed capsules.
      second_types: int, types of the second routed capsules.
      num_routing: int, iterations of the routing.
      padding: str, padding of the convolution; authors: VALID for 32x32 images.
    """
    hidden = convolution_block(conv_channels, *CONVOLUTION, "conv1", padding)(
        images
    )
    primary = PrimaryVBCapsules(primary_types, name="primary_capsules")
    options: dict[str, Any] = {"num_routing": num_routing}
    routed = [
        ConvVBCapsules(first_types, 3, 2, name="conv_capsules1", **options),
        ConvVBCapsules(second_types, 3, 1, name="conv_capsules2", **options),
        ClassVBCapsules(num_classes, name="class_capsules", **options),
    ]
    return {"conv1": hidden, **pose_tensors(primary(hidden), routed)}
