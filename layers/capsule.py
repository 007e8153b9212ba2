"""Capsule layers: fully connected, and convolutional with shared kernels."""

import math
from typing import Any

import keras
from keras import ops

from .base_layers import (
    BIAS,
    WEIGHT_STDDEV,
    CapsuleLayer,
    Layer,
    Names,
    Shape,
    Tensor,
    TruncatedNormal,
    mask_out,
    positions_of,
    registered,
    with_mask,
)
from .fast_convolution import convolution
from .routing import RoutingRule, couplings_of, lengths, route
from .votes import FormedVotes, SharedVotes, linear_votes


@registered
class Length(Layer):
    """The length of each capsule, the probability that its entity exists.

    Input shape: [..., A]. Output shape: [...], float32 for any dtype policy.
    """

    def call(self, inputs: Tensor) -> Tensor:
        return lengths(inputs)

    def compute_mask(self, inputs: Tensor, previous_mask: Any) -> Any:
        return previous_mask  # one value for each capsule

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return tuple(input_shape[:-1])

    def compute_output_spec(self, inputs: Tensor) -> Any:
        return keras.KerasTensor(inputs.shape[:-1], "float32")


class _RoutedLayer(CapsuleLayer):
    """Base of layers that route votes; masked capsules cast no votes."""

    arguments: Names = (*CapsuleLayer.arguments, "num_routing", "leaky")
    arguments += ("use_bias",)

    def __init__(
        self,
        num_capsules: int,
        num_atoms: int,
        num_routing: int,
        leaky: bool,
        *,
        rule: RoutingRule | dict | None = None,
        use_bias: bool = True,
        kernel_initializer: str | keras.initializers.Initializer | None = None,
        **kwargs: Any,
    ):
        super().__init__(num_capsules, num_atoms, **kwargs)
        self.num_routing = num_routing
        if isinstance(rule, dict):
            self.rule: RoutingRule = keras.saving.deserialize_keras_object(rule)
        else:
            self.rule = rule or RoutingRule(leaky=leaky)
        self.leaky = self.rule.leaky
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(
            kernel_initializer or TruncatedNormal(stddev=WEIGHT_STDDEV)
        )

    def call(self, inputs: Tensor, mask: Tensor | None = None) -> Tensor:
        # Keras casts only floats, and only in `__call__`.
        inputs = ops.cast(inputs, self.compute_dtype)
        votes = self._votes(mask_out(inputs, mask))
        return route(votes, self.biases, self.num_routing, self.rule)

    def couplings(self, inputs: Tensor, mask: Tensor | None = None) -> Tensor:
        """Couplings of all iterations: float32 [num_routing, ..., I, O].

        `mask` acts as in `call`; None stands for Keras' mask of the inputs.
        """
        return with_mask(self._couplings, inputs, mask)

    def _couplings(self, inputs, mask):
        inputs = ops.cast(inputs, self.compute_dtype)
        votes = self._votes(mask_out(inputs, mask))
        return couplings_of(votes, self.biases, self.num_routing, self.rule)

    def _add_weights(self, shape):
        initializer = self.kernel_initializer
        self.kernel = self.add_weight(shape, initializer, name="weights")
        self.biases = None
        if self.use_bias:
            shape = self.num_capsules, self.num_atoms
            constant = keras.initializers.Constant(BIAS)
            self.biases = self.add_weight(shape, constant, name="biases")

    def get_config(self) -> dict[str, Any]:
        serialize = keras.saving.serialize_keras_object
        return {
            **super().get_config(),
            "rule": serialize(self.rule),
            "kernel_initializer": serialize(self.kernel_initializer),
        }


@registered
class Capsule(_RoutedLayer):
    """Fully connected: every input capsule votes for every output capsule.

    votes[b, i, o, :] = inputs[b, i, :] @ W[i, :, o, :]. `route` routes the
    votes (section 2 of the paper). DigitCaps (section 4) is such a layer.

    Weights: `weights` [I, a, O * A], initially truncated normal with stddev
    0.1; `biases` [O, A], initially 0.1. W [I, a, O, A] is `weights` reshaped.

    With `share_weights`, as in `networks.shared_capsule`, all input capsules
    use the same `weights` [1, a, O * A]; their number may differ between calls.

    Args:
      num_capsules: int, O, number of output capsules.
      num_atoms: int, A, atoms of an output capsule.
      num_routing: int, number of routing iterations.
      leaky: bool, whether couplings come from `leaky_softmax`.
      share_weights: bool, whether all input capsules share their weights.
      rule: `RoutingRule` instead of the paper's; `leaky` is then ignored.
      use_bias: bool, whether the layer has `biases`.
      kernel_initializer: initializer of `weights`.

    Input shape: [B, I, a], I capsules of `a` atoms. Output shape: [B, O, A].
    """

    arguments = (*_RoutedLayer.arguments, "share_weights")

    def __init__(
        self,
        num_capsules: int,
        num_atoms: int,
        num_routing: int = 3,
        leaky: bool = False,
        share_weights: bool = False,
        **kwargs: Any,
    ):
        super().__init__(num_capsules, num_atoms, num_routing, leaky, **kwargs)
        self.share_weights = share_weights

    def build(self, input_shape: Shape) -> None:
        _, inputs, atoms = input_shape
        output_size = self.num_capsules * self.num_atoms
        if self.share_weights:
            inputs = None
        elif inputs is None:
            raise ValueError(
                "The number of input capsules must be known, unless "
                f"`share_weights=True`. Received: {tuple(input_shape)}"
            )
        self._add_weights((inputs or 1, atoms, output_size))
        self.input_spec = keras.layers.InputSpec(shape=(None, inputs, atoms))

    def _votes(self, inputs):
        votes = SharedVotes if self.share_weights else linear_votes
        kernel = ops.cast(self.kernel, self.compute_dtype)
        return votes(inputs, kernel, self.num_capsules)

    def _couplings(self, inputs, mask):
        couplings = super()._couplings(inputs, mask)
        if mask is None:
            return couplings
        return ops.where(ops.expand_dims(mask, -1), couplings, 0)

    def multiply_adds(self, input_shape: Shape) -> int:
        return input_shape[1] * math.prod(self.kernel.shape[1:])


@registered
class ConvSlimCapsule(_RoutedLayer):
    """Convolutional capsules whose kernel is shared by all input types.

    A 2-D convolution of each input type gives its votes. At each position, the
    votes of all input types are routed to all output types. With one input type
    and one iteration, the layer is PrimaryCapsules of the paper (section 4).

    Weights: `weights` [k, k, a, O * A], initially truncated normal with stddev
    0.1; `biases` [O, A], initially 0.1. All positions share the same biases.

    Args:
      num_capsules: int, O, number of output capsule types.
      num_atoms: int, A, atoms of an output capsule.
      kernel_size: int, k, height and width of the kernel.
      strides: int, the stride in both directions.
      padding: "VALID" or "SAME", in upper or lower case.
      num_routing, leaky, rule, use_bias, kernel_initializer, **kwargs: see
        `Capsule`.

    Input shape: [B, H, W, I, a] (I types, `a` atoms). Output: [B, h, w, O, A].
    """

    arguments = (*_RoutedLayer.arguments, "kernel_size", "strides", "padding")

    def __init__(
        self,
        num_capsules: int,
        num_atoms: int,
        kernel_size: int,
        strides: int = 1,
        padding: str = "VALID",
        num_routing: int = 3,
        leaky: bool = False,
        **kwargs: Any,
    ):
        super().__init__(num_capsules, num_atoms, num_routing, leaky, **kwargs)
        self.kernel_size = kernel_size
        self.strides = strides
        self.padding = padding.upper()
        self.input_spec = keras.layers.InputSpec(ndim=5)

    def build(self, input_shape: Shape) -> None:
        size = self.kernel_size
        outputs = self.num_capsules * self.num_atoms
        self._add_weights((size, size, input_shape[-1], outputs))
        self.input_spec = keras.layers.InputSpec(shape=(None, *input_shape[1:]))

    def _votes(self, inputs):
        _, height, width, types, atoms = ops.shape(inputs)
        images = ops.transpose(inputs, (0, 3, 1, 2, 4))
        images = ops.reshape(images, (-1, height, width, atoms))
        strides = (self.strides, self.strides)
        votes = convolution(images, self.kernel, strides, self.padding.lower())
        outputs = (self.num_capsules, self.num_atoms)
        sizes = ops.shape(votes)[1:3]
        votes = ops.reshape(votes, (-1, types, *sizes, *outputs))
        votes = ops.transpose(votes, (0, 2, 3, 1, 4, 5))  # [B, h, w, I, O, A]
        return FormedVotes(votes)

    def multiply_adds(self, input_shape: Shape) -> int:
        _, rows, columns, *_ = self.compute_output_shape(input_shape)
        types = input_shape[3]
        return rows * columns * types * math.prod(self.kernel.shape)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        window = self.kernel_size, self.strides, self.padding
        positions = (n and positions_of(n, *window) for n in input_shape[1:3])
        return (input_shape[0], *positions, self.num_capsules, self.num_atoms)
