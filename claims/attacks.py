"""White-box attacks on a network: FGSM, PGD, and PGD against the detector.

Sources: Goodfellow, Shlens, Szegedy 2015 (FGSM); Madry and others 2018 (PGD);
Qin, Frosst, Sabour and others 2020, arXiv 1907.02957 (against the detector).
"""

import keras
import numpy as np
from keras import ops

from input_data import features as keys

# What an attack's step increases, as weights of three sums over the images: the
# largest logit of another class minus the label's logit; the network's own
# classification loss; the squared distance between image and reconstruction.
DIRECTIONS = {
    "logits": np.array([1, 0, 0], "float32"),
    "own_loss": np.array([0, 1, 0], "float32"),
    "closer": np.array([0, 0, -1], "float32"),
}


class Network:
    """Predictions and attacks of a `Classifier` for one target.

    Every batch has `batch_size` images, so that each function is compiled once.
    The weights of the model may change between calls.
    """

    def __init__(self, model, batch_size):
        self._model, self._batch_size = model, batch_size
        self._predict = _compiled(model, self._outputs)
        gradient = _gradient_of(self._objective)
        self._gradient = _compiled(model, gradient)

    def predict(self, images):
        """Logits [N, classes] and the distances [N], zeros without a decoder.

        The distance is the L2 norm of the image minus its reconstruction from
        the capsule of the predicted class.
        """
        parts = [self._predict(batch) for _, (batch,) in self._batches(images)]
        to_numpy = ops.convert_to_numpy
        logits, squares = (
            np.concatenate([to_numpy(part) for part in column])[: len(images)]
            for column in zip(*parts, strict=True)
        )
        return logits, np.sqrt(squares)

    def fgsm(self, images, labels, eps, direction="logits"):
        """The images [N, H, W, C] after one step of size `eps`.

        `labels` are one-hot, float32 [N, classes].
        """
        return self._attack(images, labels, eps, eps, [direction])

    def pgd(self, images, labels, eps, steps, directions=("logits",)):
        """The images after `steps` steps of size 2.5 eps / steps.

        The steps take the `directions` in turn.
        """
        turns = [directions[n % len(directions)] for n in range(steps)]
        return self._attack(images, labels, eps, 2.5 * eps / steps, turns)

    def gradients(self, images, labels, direction="logits"):
        """The gradients [N, H, W, C] that a step follows."""
        parts = [
            ops.convert_to_numpy(self._gradient(*batch, DIRECTIONS[direction]))
            for _, batch in self._batches(images, labels)
        ]
        return np.concatenate(parts)[: len(images)]

    def _attack(self, images, labels, eps, size, directions):
        attacked = np.empty_like(images)
        for rows, (x, y) in self._batches(images, labels):
            low, high = np.maximum(x - eps, 0), np.minimum(x + eps, 1)
            changed = x
            for direction in directions:
                gradient = self._gradient(changed, y, DIRECTIONS[direction])
                step = size * np.sign(ops.convert_to_numpy(gradient))
                changed = np.clip(changed + step, low, high).astype("float32")
            attacked[rows] = changed[: len(attacked[rows])]
        return attacked

    def _batches(self, *arrays):
        """Yields rows (a slice) and the batches of these rows, of equal size.

        The last batch repeats its last row.
        """
        count = len(arrays[0])
        for start in range(0, count, self._batch_size):
            rows = np.arange(start, start + self._batch_size)
            rows = np.minimum(rows, count - 1)
            stop = start + self._batch_size
            yield slice(start, stop), [array[rows] for array in arrays]

    def _outputs(self, call, images):
        outputs = call(images)
        return outputs[keys.LOGITS], _squared_distance(images, outputs)

    def _objective(self, call, images, labels, weights):
        outputs = call(images)
        logits = outputs[keys.LOGITS]
        others = ops.max(logits - 1e9 * labels, axis=-1)
        own = self._model.classification_loss(labels, outputs, None)
        sums = [
            ops.sum(others - ops.sum(labels * logits, axis=-1)),
            ops.sum(own),
            ops.sum(_squared_distance(images, outputs)),
        ]
        return ops.sum(weights * ops.stack(sums))


def _squared_distance(images, outputs):
    """Squared L2 distances [B] of images and reconstructions, float32."""
    if keys.RECONS not in outputs:
        return ops.zeros_like(outputs[keys.LOGITS][:, 0])
    difference = images - ops.cast(outputs[keys.RECONS], "float32")
    return ops.sum(ops.square(difference), axis=(1, 2, 3))


def _gradient_of(function):
    """A function that returns the gradient of `function` by the images.

    Both functions take the call of a network, images, and more arguments.
    """
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        return jax.grad(function, argnums=1)
    if backend == "tensorflow":
        import tensorflow as tf

        def gradient(call, images, *arguments):
            with tf.GradientTape() as tape:
                tape.watch(images)
                value = function(call, images, *arguments)
            return tape.gradient(value, images)

        return gradient
    import torch

    def gradient(call, images, *arguments):
        images.requires_grad_()
        return torch.autograd.grad(function(call, images, *arguments), images)

    return gradient


def _compiled(model, function):
    """Compiles `function(call, *arrays)`; takes the NumPy arrays alone.

    `call(images)` returns the outputs of `model`.
    """
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        @jax.jit
        def with_weights(weights, *arrays):
            def call(images):
                inputs = {keys.IMAGES: images}
                return model.stateless_call(*weights, inputs)[0]

            return function(call, *arrays)

        def compiled(*arrays):
            groups = model.trainable_variables, model.non_trainable_variables
            weights = [[v.value for v in group] for group in groups]
            return with_weights(weights, *arrays)

        return compiled

    def call(images):
        return model({keys.IMAGES: images}, training=False)

    if backend == "tensorflow":
        import tensorflow as tf

        compiled = tf.function(
            lambda *arrays: function(call, *arrays),
            jit_compile=model.xla is True,
        )
        return lambda *arrays: compiled(*map(tf.constant, arrays))
    tensor = ops.convert_to_tensor
    return lambda *arrays: function(call, *map(tensor, arrays))
