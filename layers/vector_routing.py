"""Heinsen's algorithm for routing vectors.

Axes, atoms always last: B batch, I input capsules with `a` atoms each, O output
capsules with A atoms each. Sources: F. Heinsen, "An algorithm for routing
vectors in sequences", https://arxiv.org/abs/2211.11754, and the author's code.
"""

from typing import Any

import keras
from keras import backend, initializers, ops

from .base_layers import (
    CapsuleLayer,
    Shape,
    Tensor,
    mask_out,
    registered,
    with_mask,
)


def _normalized(capsules):
    if capsules.shape[-1] == 1:
        return capsules
    mean, variance = ops.moments(capsules, axes=-1, keepdims=True)
    return (capsules - mean) * ops.rsqrt(variance + 1e-5)


@registered
class VectorRouting(CapsuleLayer):
    """Routes capsules, or vectors of a sequence, by signed credit.

    Output o is the sum over i of credit[b, i, o] * votes[b, i, o, :], where
    credit = f * (use * R - ignore * (1 - R)). f in (0, 1) is the activation of
    input i. R is the share of input i for output o: the shares of an input sum
    to 1, and outputs that predict the input better get larger shares. `use` and
    `ignore` are learned. Votes are affine in the inputs. Computes in float32.

    Args:
      num_capsules: int, O.
      num_atoms: int, A.
      num_routing: int, iterations.
      normalize: bool, whether to apply layer normalization to outputs.
      any_number: bool, whether all input capsules use the same weights. If
        so, the layer takes any number of input capsules, in any order.

    Input shape: [B, I, a], mask [B, I]. Output shape: [B, O, A].
    """

    arguments = (*CapsuleLayer.arguments, "num_routing", "normalize")
    arguments += ("any_number",)

    def __init__(
        self,
        num_capsules: int,
        num_atoms: int,
        num_routing: int = 2,
        normalize: bool = True,
        any_number: bool = False,
        **kwargs: Any,
    ):
        super().__init__(num_capsules, num_atoms, autocast=False, **kwargs)
        if num_routing < 1:
            raise ValueError(
                f"`num_routing` must be at least 1. Received: {num_routing}"
            )
        self.num_routing = num_routing
        self.normalize = normalize
        self.any_number = any_number

    def build(self, input_shape: Shape) -> None:
        _, inputs, atoms = input_shape
        outputs, output_atoms = self.num_capsules, self.num_atoms
        rows = 1 if self.any_number else inputs
        root = atoms**-0.5
        shapes = {  # and standard deviations; None is uniform in +-root
            "activation": ((rows, atoms), 2 * root),
            "activation_bias": ((rows,), 0),
            "vote_scale": ((outputs, atoms), 1),
            "vote": ((atoms, output_atoms), 2 * root),
            "vote_bias": ((outputs, output_atoms), 0),
            "prediction": ((output_atoms, atoms), output_atoms**-0.5),
            "prediction_scale": ((outputs, atoms), 1),
            "prediction_bias": ((outputs, atoms), 0),
            "match": ((rows, outputs), root),
            "match_bias": ((rows, outputs), 0),
            "price": ((inputs, 2 * outputs), 1),  # to use, and to ignore
        }
        if self.any_number:
            inputs = None
            shapes["price"] = (atoms, 2 * outputs), None
            shapes["price_bias"] = (2 * outputs,), None
        self.named = {}
        for name, (shape, deviation) in shapes.items():
            initializer = initializers.RandomUniform(-root, root)
            if deviation is not None:
                initializer = initializers.RandomNormal(stddev=deviation)
            self.named[name] = self.add_weight(
                shape, initializer, autocast=False, name=name
            )
        self.input_spec = keras.layers.InputSpec(shape=(None, inputs, atoms))

    def call(self, inputs: Tensor, mask: Tensor | None = None) -> Tensor:
        outputs, _, _ = self._route(inputs, mask)
        outputs = _normalized(outputs) if self.normalize else outputs
        return ops.cast(outputs, self.compute_dtype)

    def credit(self, inputs: Tensor, mask: Tensor | None = None) -> Tensor:
        """The credit of each input for each output: float32 [B, I, O]."""
        return with_mask(self._route, inputs, mask)[1]

    def couplings(self, inputs: Tensor, mask: Tensor | None = None) -> Tensor:
        """The shares R of all iterations: float32 [num_routing, B, I, O]."""
        return with_mask(self._route, inputs, mask)[2]

    def _route(self, inputs, mask):
        """Outputs before `normalize`, the last credit, and all shares."""
        dtype = backend.result_type(self.compute_dtype, "float32")
        w, x = self.named, ops.cast(inputs, dtype)
        valid, count = ops.ones_like(x[..., :1]), ops.shape(x)[1]
        if mask is not None:
            x, valid = mask_out(x, mask), ops.cast(mask, dtype)[..., None]
            count = ops.maximum(ops.sum(valid, axis=1, keepdims=True), 1)
        scaled = x * ops.rsqrt(ops.cast(count, dtype))
        active = ops.sum(scaled * w["activation"], axis=-1)
        valid = ops.repeat(valid, self.num_capsules, axis=-1)
        active = ops.sigmoid(active + w["activation_bias"])[..., None] * valid
        price = w["price"]
        if self.any_number:
            price = ops.matmul(x, price) + w["price_bias"]
        use, ignore = ops.split(price, 2, axis=-1)
        outputs, share, shares = None, valid / self.num_capsules, []
        for iteration in range(self.num_routing):
            if iteration:
                predicted = ops.matmul(_normalized(outputs), w["prediction"])
                predicted = predicted * w["prediction_scale"]
                predicted = predicted + w["prediction_bias"]
                logits = ops.einsum("bia,boa->bio", x, predicted)
                logits = ops.log_sigmoid(logits * w["match"] + w["match_bias"])
                share = ops.softmax(logits, axis=-1) * valid
            credit = active * (use * share - ignore * (1 - share))
            shares.append(share)
            sums = ops.einsum("bio,bia->boa", credit, scaled)
            outputs = ops.matmul(sums * w["vote_scale"], w["vote"])
            total = ops.sum(credit, axis=1)[..., None]
            outputs = outputs + total * w["vote_bias"]
        return outputs, credit, ops.stack(shares)

    def multiply_adds(self, input_shape: Shape) -> int:
        _, inputs, atoms = input_shape
        votes = self.num_capsules * atoms * self.num_atoms
        prices = 2 * self.num_capsules * atoms * inputs * self.any_number
        return inputs * atoms + votes + prices
