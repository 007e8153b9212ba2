"""Capsule layers: fully connected, and convolutional with shared kernels."""

import keras
from keras import ops

from .convolution import convolution
from .initial_weights import constant_bias, truncated_normal
from .routing import RoutingRule, couplings_of, lengths, route
from .votes import FormedVotes, LinearVotes


def require_positive(**arguments: int) -> None:
    """Raises ValueError for the first that is not a positive integer."""
    for name, value in arguments.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(
                f"{name} must be a positive integer. Received: {value!r}"
            )


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


class _RoutedLayer(keras.layers.Layer):
    """What both capsule layers share: output capsules, biases and routing."""

    def __init__(self, num_capsules, num_atoms, num_routing, leaky, **kwargs):
        super().__init__(**kwargs)
        require_positive(
            num_capsules=num_capsules,
            num_atoms=num_atoms,
            num_routing=num_routing,
        )
        if not isinstance(leaky, bool):
            raise ValueError(f"leaky must be a bool. Received: {leaky!r}")
        self.num_capsules = num_capsules
        self.num_atoms = num_atoms
        self.num_routing = num_routing
        self.leaky = leaky
        self.rule = RoutingRule(leaky=leaky)

    def _route(self, votes):
        return route(votes, self.biases, self.num_routing, self.rule)

    def _add_weights(self, shape):
        """Creates `weights` of the given shape and `biases` [O, A]."""
        self.kernel = self.add_weight(
            name="weights",
            shape=shape,
            initializer=truncated_normal(),
        )
        self.biases = self.add_weight(
            name="biases",
            shape=(self.num_capsules, self.num_atoms),
            initializer=constant_bias(),
        )

    def get_config(self):
        return {
            **super().get_config(),
            "num_capsules": self.num_capsules,
            "num_atoms": self.num_atoms,
            "num_routing": self.num_routing,
            "leaky": self.leaky,
        }


@keras.saving.register_keras_serializable(package="capsules")
class Capsule(_RoutedLayer):
    """Fully connected capsules: every input capsule votes for every output.

    votes[b, i, o, :] = inputs[b, i, :] @ weights[i, :, o, :], routed over the
    input capsules (the paper's section 2; the DigitCaps of its section 4) by
    `route`; `LinearVotes` does not form them.

    Weights, with I input capsules of a atoms: `weights` [I, a, O * A],
    truncated normal of stddev 0.1, and `biases` [O, A], 0.1 at the start.

    Args:
      num_capsules: int, O, the number of output capsules.
      num_atoms: int, A, the atoms of each.
      num_routing: int >= 1, routing iterations.
      leaky: bool, whether couplings may sum to less than 1.
      **kwargs: of `keras.layers.Layer`.

    Input shape: [B, I, a]. Output shape: [B, O, A].

    Raises:
      ValueError: for arguments that are not positive integers, and at build
        if the input does not have three axes of which the last two are known.
    """

    def __init__(
        self, num_capsules, num_atoms, num_routing=3, leaky=False, **kwargs
    ):
        super().__init__(num_capsules, num_atoms, num_routing, leaky, **kwargs)
        self.input_spec = keras.layers.InputSpec(ndim=3)

    def build(self, input_shape):
        if len(input_shape) != 3 or None in input_shape[1:]:
            raise ValueError(
                f"{self.name} needs input of the shape (batch, capsules, "
                "atoms) with known capsules and atoms. Received: "
                f"{tuple(input_shape)}"
            )
        _, inputs, input_atoms = input_shape
        self._add_weights(
            (inputs, input_atoms, self.num_capsules * self.num_atoms)
        )
        self.input_spec = keras.layers.InputSpec(
            shape=(None, inputs, input_atoms)
        )

    def call(self, inputs):
        return self._route(LinearVotes(inputs, self.kernel, self.num_capsules))

    def couplings(self, inputs):
        """How the built layer routes its input capsules to its outputs.

        Args:
          inputs: tensor [B, I, a].

        Returns:
          float32 tensor [num_routing, B, I, O]: the coupling coefficients of
          each routing iteration.
        """
        votes = LinearVotes(inputs, self.kernel, self.num_capsules)
        return couplings_of(votes, self.biases, self.num_routing, self.rule)

    def compute_output_shape(self, input_shape):
        return (input_shape[0], self.num_capsules, self.num_atoms)


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
      **kwargs: of `keras.layers.Layer`.

    Input shape: [B, H, W, I, a]. Output shape: [B, h, w, O, A].

    Raises:
      ValueError: for arguments out of range, and at build if the input does
        not have five axes of which the last four are known, or is smaller
        than the kernel under VALID padding.
    """

    def __init__(
        self,
        num_capsules,
        num_atoms,
        kernel_size,
        strides=1,
        padding="VALID",
        num_routing=3,
        leaky=False,
        **kwargs,
    ):
        super().__init__(num_capsules, num_atoms, num_routing, leaky, **kwargs)
        require_positive(kernel_size=kernel_size, strides=strides)
        if str(padding).upper() not in ("VALID", "SAME"):
            raise ValueError(
                f"padding must be VALID or SAME. Received: {padding!r}"
            )
        self.kernel_size = kernel_size
        self.strides = strides
        self.padding = padding.upper()
        self.input_spec = keras.layers.InputSpec(ndim=5)

    def build(self, input_shape):
        if len(input_shape) != 5 or None in input_shape[1:]:
            raise ValueError(
                f"{self.name} needs input of the shape (batch, height, width, "
                "capsules, atoms), all but the batch known. Received: "
                f"{tuple(input_shape)}"
            )
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

    def call(self, inputs):
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
        return self._route(FormedVotes(votes))

    def compute_output_shape(self, input_shape):
        def positions(size):
            if self.padding == "VALID":
                size = size - self.kernel_size + 1
            return -(-size // self.strides)

        return (
            input_shape[0],
            positions(input_shape[1]),
            positions(input_shape[2]),
            self.num_capsules,
            self.num_atoms,
        )

    def get_config(self):
        return {
            **super().get_config(),
            "kernel_size": self.kernel_size,
            "strides": self.strides,
            "padding": self.padding,
        }
