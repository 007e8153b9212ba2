"""Heinsen's algorithm for routing vectors.

Axes, atoms always last: B batch, I input capsules of a atoms, O output
capsules of A atoms. Sources: F. Heinsen, "An algorithm for routing vectors in
sequences", https://arxiv.org/abs/2211.11754, and the author's code.
"""

from typing import Any

import keras
from keras import backend, initializers, ops

from .base_layers import Layer, registered, with_mask
from .tensors import Names, Shape, Tensor, mask_out


def _normalized(capsules):
    """Layer normalization over the atoms, unless there is only one."""
    if capsules.shape[-1] == 1:
        return capsules
    mean, variance = ops.moments(capsules, axes=-1, keepdims=True)
    return (capsules - mean) * ops.rsqrt(variance + 1e-5)


@registered
class VectorRouting(Layer):
    """Routes capsules, or vectors of a sequence, by signed credit.

    Output o is the sum over i of credit[b, i, o] * votes[b, i, o, :], where
    credit = f * (use * R - ignore * (1 - R)). An input has the activation f in
    (0, 1) and shares R, which sum to 1 over the outputs; outputs that predict
    the input better get larger shares. use and ignore are learned. Votes have a
    low rank and are never formed. All computations are in float32.

    Args:
      num_capsules: int, O.
      num_atoms: int, A.
      num_routing: int, iterations.
      normalize: bool, whether to normalize outputs over their atoms.
      any_number: bool, whether all input capsules share their weights. The
        layer then takes any number of them, in any order.

    Call arguments:
      inputs: [B, I, a].
      mask: bool [B, I], false for padding, by default Keras' mask of inputs.
      pair_mask: bool [I, O] or [B, I, O], false where o ignores i.

    Output shape: [B, O, A].
    """

    arguments: Names = ("num_capsules", "num_atoms", "num_routing")
    arguments += ("normalize", "any_number")

    def __init__(
        self,
        num_capsules: int,
        num_atoms: int,
        num_routing: int = 2,
        normalize: bool = True,
        any_number: bool = False,
        **kwargs: Any,
    ):
        super().__init__(autocast=False, **kwargs)
        self.num_capsules = num_capsules
        self.num_atoms = num_atoms
        self.num_routing = num_routing
        self.normalize = normalize
        self.any_number = any_number
        self.input_spec = keras.layers.InputSpec(ndim=3)

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

    def call(
        self, inputs: Tensor, mask: Any = None, pair_mask: Any = None
    ) -> Tensor:
        outputs, _, _ = self._route(inputs, mask, pair_mask)
        outputs = _normalized(outputs) if self.normalize else outputs
        return ops.cast(outputs, self.compute_dtype)

    def credit(
        self, inputs: Tensor, mask: Any = None, pair_mask: Any = None
    ) -> Tensor:
        """The credit of each input for each output: float32 [B, I, O]."""
        return with_mask(self._part(1, pair_mask), inputs, mask)

    def couplings(
        self, inputs: Tensor, mask: Any = None, pair_mask: Any = None
    ) -> Tensor:
        """The shares R of all iterations: float32 [num_routing, B, I, O]."""
        return with_mask(self._part(2, pair_mask), inputs, mask)

    def _part(self, part, pair_mask):
        return lambda x, mask: self._route(x, mask, pair_mask)[part]

    def _route(self, inputs, mask, pair_mask):
        dtype = backend.result_type(self.compute_dtype, "float32")
        w, x = self.named, ops.cast(inputs, dtype)
        outputs = None
        allowed = ops.ones_like(x[..., :1]) * ops.ones(self.num_capsules, dtype)
        if pair_mask is not None:
            allowed = allowed * ops.cast(pair_mask, dtype)
        count = ops.cast(ops.shape(x)[1], dtype)
        if mask is not None:
            x = mask_out(x, mask)
            valid = ops.cast(mask, dtype)[..., None]
            allowed = allowed * valid
            count = ops.maximum(ops.sum(valid, axis=1, keepdims=True), 1)
        scaled = x * ops.rsqrt(count)
        active = ops.sum(scaled * w["activation"], axis=-1)
        active = ops.sigmoid(active + w["activation_bias"])
        active = active[..., None] * allowed
        price = w["price"]
        if self.any_number:
            price = ops.matmul(x, price) + w["price_bias"]
        use, ignore = ops.split(price, 2, axis=-1)
        logits, shares = ops.zeros_like(allowed), []
        for iteration in range(self.num_routing):
            if iteration:
                predicted = ops.matmul(_normalized(outputs), w["prediction"])
                predicted = predicted * w["prediction_scale"]
                predicted = predicted + w["prediction_bias"]
                logits = ops.einsum("bia,boa->bio", x, predicted)
                logits = logits * w["match"] + w["match_bias"]
                logits = ops.log_sigmoid(logits)
            logits = ops.where(allowed > 0, logits, -1e30)
            shares.append(ops.softmax(logits, axis=-1) * allowed)
            credit = active * (use * shares[-1] - ignore * (1 - shares[-1]))
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

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (input_shape[0], self.num_capsules, self.num_atoms)
