"""Capsule layers: fully connected, and convolutional with shared kernels."""

import dataclasses
import math
import numbers

import keras
from keras import ops

from .convolution import convolution
from .routing import RoutingRule, couplings_of, lengths, route
from .utils import BIAS, WEIGHT_STDDEV, Tensor, TruncatedNormal, positions_of
from .votes import FormedVotes, SharedVotes, linear_votes


def require_positive(**arguments: int) -> None:
    """Raises ValueError for the first that is not a positive integer."""
    for name, value in arguments.items():
        is_whole = isinstance(value, numbers.Integral)
        if isinstance(value, bool) or not is_whole or value < 1:
            raise ValueError(
                f"{name} must be a positive integer. Received: {value!r}"
            )


def require_bool(**arguments: bool) -> None:
    """Raises ValueError for the first that is not True or False."""
    for name, value in arguments.items():
        if not isinstance(value, bool):
            raise ValueError(f"{name} must be a bool. Received: {value!r}")


def require_axes(
    layer: keras.layers.Layer, shape: tuple, *axes: str, num_unknown: int = 0
) -> None:
    """Raises ValueError unless the input has a batch and known axes.

    Args:
      layer: the layer that is built, for the message.
      shape: tuple, the shape of its input.
      *axes: names of the axes after the batch.
      num_unknown: int, how many of the first of these may be unknown, too.
    """
    if len(shape) != 1 + len(axes) or None in shape[1 + num_unknown :]:
        raise ValueError(
            f"{layer.name} needs input of the shape (batch, {', '.join(axes)})"
            f" with known {', '.join(axes[num_unknown:])}. Received: "
            f"{tuple(shape)}"
        )


def padding_of(name: str) -> str:
    """VALID or SAME, or raises ValueError."""
    if str(name).upper() not in ("VALID", "SAME"):
        raise ValueError(f"padding must be VALID or SAME. Received: {name!r}")
    return name.upper()


@keras.saving.register_keras_serializable(package="capsules")
class Length(keras.layers.Layer):
    """The length of each capsule, the probability that its entity exists.

    `lengths` as a layer. Input shape: [..., A]. Output shape: [...], float32
    under every policy.
    """

    def call(self, inputs):
        return lengths(inputs)

    def compute_output_shape(self, input_shape):
        return tuple(input_shape[:-1])

    def compute_output_spec(self, inputs):
        shape = self.compute_output_shape(inputs.shape)
        return keras.KerasTensor(shape, "float32")

    def get_config(self):
        # Without it Keras would not save a layer that was given a policy.
        return super().get_config()


def _rule_of(config):
    """The `RoutingRule` that `_RoutedLayer.get_config` describes."""
    if "class_name" in config:
        return keras.saving.deserialize_keras_object(config)
    return RoutingRule(**config)


def require_whole(rule: RoutingRule) -> None:
    """Raises ValueError for a rule that would be saved without a parameter."""
    fields = {field.name for field in dataclasses.fields(rule)}
    lost = sorted(vars(rule).keys() - fields - rule.get_config().keys())
    if lost:
        raise ValueError(
            f"{type(rule).__name__} would be saved without {', '.join(lost)}: "
            "make it a field, in a class decorated by "
            "@dataclasses.dataclass(frozen=True), or give it by get_config"
        )


class _RoutedLayer(keras.layers.Layer):
    """What both capsule layers share: output capsules, weights and routing.

    Args:
      num_capsules, num_atoms, num_routing, leaky: as of both layers.
      rule: `RoutingRule` or a dict of its attributes, if the routing is not
        the paper's; says whether it is leaky. One of a class of one's own is
        saved as Keras saves objects.
      use_bias: bool, whether there are `biases`.
      kernel_initializer: of `weights`, as layers of Keras take it; by default
        the reference's.
      **kwargs: of `keras.layers.Layer`.
    """

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
        **kwargs,
    ):
        super().__init__(**kwargs)
        require_positive(
            num_capsules=num_capsules,
            num_atoms=num_atoms,
            num_routing=num_routing,
        )
        require_bool(leaky=leaky, use_bias=use_bias)
        if isinstance(rule, dict):
            rule = _rule_of(rule)
        if not isinstance(rule, RoutingRule | None):
            raise ValueError(f"rule must be a RoutingRule. Received: {rule!r}")
        if leaky and rule is not None and not rule.leaky:
            raise ValueError("leaky is True, but rule is not leaky")
        self.num_capsules = num_capsules
        self.num_atoms = num_atoms
        self.num_routing = num_routing
        self.rule = rule or RoutingRule(leaky=leaky)
        self.leaky = self.rule.leaky
        self.use_bias = use_bias
        self.kernel_initializer = (
            TruncatedNormal(stddev=WEIGHT_STDDEV)
            if kernel_initializer is None
            else keras.initializers.get(kernel_initializer)
        )

    def _votes(self, inputs):
        """The votes of input capsules, for `route`."""
        raise NotImplementedError

    def call(self, inputs):
        votes = self._votes(inputs)
        return route(votes, self.biases, self.num_routing, self.rule)

    def couplings(self, inputs: Tensor) -> Tensor:
        """How the built layer routes its input capsules to its outputs.

        Args:
          inputs: tensor [..., I, a], as of a call.

        Returns:
          float32 tensor [num_routing, ..., I, O]: the coupling coefficients of
          each routing iteration.
        """
        # Outside of a call nothing is cast by itself.
        votes = self._votes(ops.cast(inputs, self.compute_dtype))
        return couplings_of(votes, self.biases, self.num_routing, self.rule)

    def _add_weights(self, shape):
        """Creates `weights` of the given shape and `biases` [O, A], if any."""
        self.kernel = self.add_weight(
            name="weights",
            shape=shape,
            initializer=self.kernel_initializer,
        )
        self.biases = None
        if self.use_bias:
            self.biases = self.add_weight(
                name="biases",
                shape=(self.num_capsules, self.num_atoms),
                initializer=keras.initializers.Constant(BIAS),
            )

    def get_config(self):
        if self.rule == RoutingRule(leaky=self.leaky):
            rule = None
        elif type(self.rule) is RoutingRule:
            rule = self.rule.get_config()
        else:
            require_whole(self.rule)
            rule = keras.saving.serialize_keras_object(self.rule)
        return {
            **super().get_config(),
            "num_capsules": self.num_capsules,
            "num_atoms": self.num_atoms,
            "num_routing": self.num_routing,
            "leaky": self.leaky,
            "rule": rule,
            "use_bias": self.use_bias,
            "kernel_initializer": keras.initializers.serialize(
                self.kernel_initializer
            ),
        }


@keras.saving.register_keras_serializable(package="capsules")
class Capsule(_RoutedLayer):
    """Fully connected capsules: every input capsule votes for every output.

    votes[b, i, o, :] = inputs[b, i, :] @ weights[i, :, o, :], routed over the
    input capsules (the paper's section 2; the DigitCaps of its section 4) by
    `route`; whether they are formed, votes.py decides.

    Weights, with I input capsules of a atoms: `weights` [I, a, O * A],
    truncated normal of stddev 0.1, and `biases` [O, A], 0.1 at the start.

    With `share_weights` all input capsules have the same, `weights`
    [1, a, O * A], and I may be unknown and change from call to call. J. Su's
    layer (https://kexue.fm/archives/5112) is

      Capsule(
          O, A, share_weights=True, use_bias=False,
          kernel_initializer="glorot_uniform",
          rule=RoutingRule(
              logits="replace", compare="direction",
              squash_constant=0.5, squash_epsilon=1e-7,
          ),
      )

    Args:
      num_capsules: int, O, the number of output capsules.
      num_atoms: int, A, the atoms of each.
      num_routing: int >= 1, routing iterations.
      leaky: bool, whether couplings may sum to less than 1.
      share_weights: bool, whether all input capsules share their weights.
      **kwargs: `rule`, `use_bias` and `kernel_initializer`, see
        `_RoutedLayer`, and those of `keras.layers.Layer`.

    Input shape: [B, I, a]. Output shape: [B, O, A].

    Raises:
      ValueError: for arguments of another type, or numbers that are not
        positive, and at build if the input does not have three axes, or an
        unknown number of atoms, or of capsules whose weights are not shared.
    """

    def __init__(
        self,
        num_capsules: int,
        num_atoms: int,
        num_routing: int = 3,
        leaky: bool = False,
        share_weights: bool = False,
        **kwargs,
    ):
        super().__init__(num_capsules, num_atoms, num_routing, leaky, **kwargs)
        require_bool(share_weights=share_weights)
        self.share_weights = share_weights
        self.input_spec = keras.layers.InputSpec(ndim=3)

    def build(self, input_shape):
        num_unknown = 1 if self.share_weights else 0
        require_axes(
            self, input_shape, "capsules", "atoms", num_unknown=num_unknown
        )
        _, inputs, input_atoms = input_shape
        self._add_weights(
            (
                1 if self.share_weights else inputs,
                input_atoms,
                self.num_capsules * self.num_atoms,
            )
        )
        if self.share_weights:
            inputs = None
        self.input_spec = keras.layers.InputSpec(
            shape=(None, inputs, input_atoms)
        )

    def _votes(self, inputs):
        votes = SharedVotes if self.share_weights else linear_votes
        kernel = ops.cast(self.kernel, self.compute_dtype)
        return votes(inputs, kernel, self.num_capsules)

    def multiply_adds(self, input_shape):
        """Products with weights for one example: those of its votes."""
        return input_shape[1] * math.prod(self.kernel.shape[1:])

    def compute_output_shape(self, input_shape):
        return (input_shape[0], self.num_capsules, self.num_atoms)

    def get_config(self):
        return {**super().get_config(), "share_weights": self.share_weights}


@keras.saving.register_keras_serializable(package="capsules")
class ConvSlimCapsule(_RoutedLayer):
    """Convolutional capsules whose kernel is shared by all input capsules.

    A 2-D convolution is applied to each input capsule type separately and
    gives its votes at every position; routing runs per position over
    the input types. With one input type, 256 atoms and one iteration this is
    the paper's PrimaryCapsules (section 4).

    Weights, with input capsules of a atoms: `weights` [k, k, a, O * A],
    truncated normal of stddev 0.1, and `biases` [O, A], 0.1 at the start,
    the same at every position.

    Args:
      num_capsules: int, O, the number of output capsule types.
      num_atoms: int, A, the atoms of each.
      kernel_size: int, k, height and width of the kernel.
      strides: int, the stride in both directions.
      padding: "VALID" or "SAME", in either case.
      num_routing: int >= 1, routing iterations.
      leaky: bool, whether couplings may sum to less than 1.
      **kwargs: as of `Capsule`.

    Input shape: [B, H, W, I, a]. Output shape: [B, h, w, O, A].

    Raises:
      ValueError: for arguments out of range, and at build if the input does
        not have five axes of which the last four are known, or is smaller
        than the kernel under VALID padding.
    """

    def __init__(
        self,
        num_capsules: int,
        num_atoms: int,
        kernel_size: int,
        strides: int = 1,
        padding: str = "VALID",
        num_routing: int = 3,
        leaky: bool = False,
        **kwargs,
    ):
        super().__init__(num_capsules, num_atoms, num_routing, leaky, **kwargs)
        require_positive(kernel_size=kernel_size, strides=strides)
        self.kernel_size = kernel_size
        self.strides = strides
        self.padding = padding_of(padding)
        self.input_spec = keras.layers.InputSpec(ndim=5)

    def build(self, input_shape):
        require_axes(self, input_shape, "height", "width", "capsules", "atoms")
        if self.padding == "VALID" and min(input_shape[1:3]) < self.kernel_size:
            raise ValueError(
                f"{self.name}: with VALID padding height and width must be at "
                f"least kernel_size={self.kernel_size}. Received: "
                f"{tuple(input_shape)}"
            )
        self._add_weights(
            (
                self.kernel_size,
                self.kernel_size,
                input_shape[-1],
                self.num_capsules * self.num_atoms,
            )
        )
        self.input_spec = keras.layers.InputSpec(shape=(None, *input_shape[1:]))

    def _votes(self, inputs):
        _, height, width, types, atoms = inputs.shape
        # Each input type becomes an image of its own: [B * I, H, W, a].
        images = ops.reshape(
            ops.transpose(inputs, (0, 3, 1, 2, 4)),
            (-1, height, width, atoms),
        )
        votes = convolution(
            images, self.kernel, self.strides, self.padding.lower()
        )
        votes = ops.reshape(
            votes,
            (
                -1,
                types,
                *votes.shape[1:3],
                self.num_capsules,
                self.num_atoms,
            ),
        )
        votes = ops.transpose(votes, (0, 2, 3, 1, 4, 5))  # [B, h, w, I, O, A]
        return FormedVotes(votes)

    def multiply_adds(self, input_shape):
        """Products with weights for one example: those of its votes."""
        _, rows, columns, *_ = self.compute_output_shape(input_shape)
        types = input_shape[3]
        return rows * columns * types * math.prod(self.kernel.shape)

    def compute_output_shape(self, input_shape):
        window = self.kernel_size, self.strides, self.padding
        positions = (positions_of(n, *window) for n in input_shape[1:3])
        outputs = self.num_capsules, self.num_atoms
        return (input_shape[0], *positions, *outputs)

    def get_config(self):
        return {
            **super().get_config(),
            "kernel_size": self.kernel_size,
            "strides": self.strides,
            "padding": self.padding,
        }
