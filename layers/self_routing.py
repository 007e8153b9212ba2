"""Self-routing: each capsule decides by its own pose where it is sent.

There is neither agreement nor iteration. Source: T. Hahn, M. Pyeon, G. Kim,
"Self-Routing Capsule Networks" (NeurIPS 2019), and the authors' code.
"""

import math

import keras
from keras import ops

from .utils import Layer, Tensor, Window
from .votes import linear_votes

# Below the rounding error of a sum of activations.
_EPSILON = 1e-12


def self_routing(
    poses: Tensor, activations: Tensor, weights: Tensor, biases: Tensor
) -> tuple[Tensor, Tensor]:
    """Couplings of children to parents, and activations of the parents.

      c_ij = softmax over j of (w_ij . u_i + b_ij)
      a_j = sum over i of a_i c_ij / sum over i of a_i

    The activations of the parents sum to 1.

    Args:
      poses: tensor u [N, K, a].
      activations: tensor a_i [N, K], at least 0.
      weights: tensor w [K, a, O].
      biases: tensor b [K, O]; only the authors' code has them.

    Returns:
      Pair of float32 tensors: couplings [N, K, O] and activations [N, O].
    """
    weights = ops.cast(weights, poses.dtype)
    logits = ops.matmul(ops.transpose(poses, (1, 0, 2)), weights)  # [K, N, O]
    logits = ops.cast(ops.transpose(logits, (1, 0, 2)), "float32")
    logits = logits + ops.cast(biases, "float32")
    couplings = ops.exp(ops.log_softmax(logits, axis=-1))
    activations = ops.cast(activations, "float32")[..., None]
    total = ops.sum(activations, axis=1) + _EPSILON
    return couplings, ops.sum(activations * couplings, axis=1) / total


@keras.saving.register_keras_serializable(package="capsules")
class SelfRoutingCapsules(Layer):
    """Convolutional capsules or class capsules with `self_routing`.

    Each parent has the K = k * k * I children of k x k positions, those in the
    padding with activation 0, and the pose (which the authors normalize next)

      u_j = sum over i of a_i c_ij W_ij u_i / sum over i of a_i c_ij

    Weights: `routing_weights` [K, a, O] and `routing_biases` [K, O], initially
    0, and `pose_weights` [K, a, O * d], initially uniform.

    Args:
      num_capsules: int, O, number of parent types.
      num_atoms: int, d, atoms of a parent's pose; 0 for no poses.
      kernel_size: int, k; None for one parent position with K = H * W * I.
      strides: int, the stride in both directions.
      padding: "VALID" or "SAME", in upper or lower case.

    Input: pair of poses [B, H, W, I, a] and activations [B, H, W, I].
    Output: pair of poses [B, h, w, O, d] and float32 activations [B, h, w, O],
      or activations alone; without the axes h, w if `kernel_size` is None.
    """

    def __init__(
        self,
        num_capsules: int,
        num_atoms: int = 0,
        kernel_size: int | None = None,
        strides: int = 1,
        padding: str = "VALID",
        **kwargs,
    ):
        # Without autocast activations stay float32 under mixed precision.
        super().__init__(autocast=False, **kwargs)
        self.num_capsules = num_capsules
        self.num_atoms = num_atoms
        self.kernel_size = kernel_size
        self.strides = strides
        self.padding = padding.upper()

    def build(self, input_shape):
        _, height, width, types, atoms = input_shape[0]
        places = self.kernel_size**2 if self.kernel_size else height * width
        shape = (places * types, atoms, self.num_capsules)
        self.routing_weights, self.routing_biases = (
            self.add_weight(axes, "zeros", name=f"routing_{name}")
            for name, axes in (("weights", shape), ("biases", shape[::2]))
        )
        if self.num_atoms:
            limit = math.sqrt(6 / (atoms * self.num_capsules * self.num_atoms))
            self.pose_weights = self.add_weight(
                (*shape[:2], shape[2] * self.num_atoms),
                keras.initializers.RandomUniform(-limit, limit),
                name="pose_weights",
            )

    def _window(self, shape):
        window = self.kernel_size, self.strides, self.padding
        return Window(*shape[1:3], *window)

    def _route(self, inputs):
        """Poses and activations of children and what `self_routing` returns."""
        if self.kernel_size:
            inputs = map(self._window(inputs[0].shape).patches, inputs)
        poses, activations = inputs
        children, atoms, _ = self.routing_weights.shape
        poses = ops.reshape(poses, (-1, children, atoms))
        poses = ops.cast(poses, self.compute_dtype)
        activations = ops.reshape(activations, (-1, children))
        weights = self.routing_weights, self.routing_biases
        return poses, activations, *self_routing(poses, activations, *weights)

    def couplings(self, inputs):
        """Coupling coefficients: float32 [B * h * w, K, O]."""
        return self._route(inputs)[2]

    def call(self, inputs):
        poses, activations, couplings, parents = self._route(inputs)
        shapes = self.compute_output_shape([tensor.shape for tensor in inputs])
        if not self.num_atoms:
            return ops.reshape(parents, (-1, *shapes[1:]))
        shares = ops.cast(activations, "float32")[..., None] * couplings
        shares = shares / (ops.sum(shares, axis=1, keepdims=True) + _EPSILON)
        weights = ops.cast(self.pose_weights, self.compute_dtype)
        votes = linear_votes(poses, weights, self.num_capsules)
        poses = votes.weighted_sum(ops.moveaxis(shares, -1, votes.outputs_axis))
        poses = ops.cast(poses, self.compute_dtype)
        return tuple(
            ops.reshape(tensor, (-1, *shape[1:]))
            for tensor, shape in zip((poses, parents), shapes, strict=True)
        )

    def compute_output_spec(self, inputs):
        # By tracing: Keras would give both outputs the same dtype.
        return keras.Operation.compute_output_spec(self, inputs)

    def compute_output_shape(self, input_shape):
        (batch, *_), shape = input_shape
        grid = self._window(shape).positions if self.kernel_size else ()
        shape = (batch, *grid, self.num_capsules)
        return ((*shape, self.num_atoms), shape) if self.num_atoms else shape

    def multiply_adds(self, input_shape):
        *_, shape = self.compute_output_shape([*input_shape])
        positions = math.prod(shape[1:-1]) if self.kernel_size else 1
        numbers = self.num_capsules * (1 + self.num_atoms)
        return positions * math.prod(self.routing_weights.shape[:2]) * numbers
