"""White-box attacks on a network: FGSM, PGD, and PGD against the detector.

Sources: Goodfellow, Shlens, Szegedy 2015 (FGSM); Madry and others 2018 (PGD);
Qin, Frosst, Sabour and others 2020, arXiv 1907.02957 (against the detector).
"""

import keras
import numpy as np
from keras import ops
from tqdm import tqdm

from input_data import keys
from input_data.pipeline import Pipeline
from models.optimizer import jit_compile

# What an attack's step increases, as sums over the images: the largest logit of
# another class minus the label's logit; the network's own classification loss;
# minus the squared distance between the model's input and its reconstruction.
DIRECTIONS = ("logits", "own_loss", "closer")


class Network:
    """Predictions and attacks of a `Classifier` for one target.

    The weights of the `model` may change between calls. Images are pixels in
    [0, 1], and the model sees `preprocess(images)`, see `Pipeline`.
    """

    def __init__(self, model, batch_size, preprocess=Pipeline.preprocess):
        self.model, self.batch_size = model, batch_size
        self.preprocess = preprocess
        if (xla := jit_compile(model)) != "auto":
            model.jit_compile = xla
        self._gradient = _compiled_gradient(model, preprocess)

    def predict(self, images):
        """Logits [N, classes]; reconstructions of the predictions, or None."""
        x = {keys.IMAGES: self.seen(images)}
        outputs = self.model.predict(x, self.batch_size, verbose=0)
        return outputs[keys.LOGITS], outputs.get(keys.RECONS)

    def seen(self, images):
        """The model's input for an array of images."""
        return ops.convert_to_numpy(self.preprocess(images))

    def attack(self, images, labels, eps, steps, directions=("logits",)):
        """The images after `steps` steps of size 2.5 eps / steps.

        Each step follows the sign of a gradient, by turns in the `directions`,
        and is clipped to [x - eps, x + eps] and [0, 1]. One step is FGSM.
        `labels` are one-hot, float32 [N, classes].
        """
        low, high = np.maximum(images - eps, 0), np.minimum(images + eps, 1)
        attacked, before = images.copy(), images - 1
        bar = {"leave": False, "mininterval": 1, "disable": steps == 1}
        for step in tqdm(range(steps), "PGD", unit="step", **bar):
            turn = step % len(directions)
            if turn == 0:
                # An image that stood still for a round will never move again.
                rows = np.flatnonzero((attacked != before).any(axis=(1, 2, 3)))
                before = attacked.copy()
            if not len(rows):
                break
            x, y = attacked[rows], labels[rows]
            sign = np.sign(self.gradients(x, y, directions[turn]))
            x += np.float32(2.5 * eps / steps) * sign
            attacked[rows] = np.clip(x, low[rows], high[rows])
        return attacked

    def gradients(self, images, labels, direction="logits"):
        """The gradients [N, H, W, C] that a step follows."""
        parts, last = [], len(images) - 1
        weights = np.float32([name == direction for name in DIRECTIONS])
        for start in range(0, len(images), self.batch_size):
            # All batches have one size: the last repeats its last row.
            rows = np.arange(start, start + self.batch_size).clip(max=last)
            gradient = self._gradient(images[rows], labels[rows], weights)
            parts.append(ops.convert_to_numpy(gradient))
        return np.concatenate(parts)[: len(images)]


def _compiled_gradient(model, preprocess):
    """Compiles the gradient by the images of the sums of `DIRECTIONS`."""

    def objective(images, labels, weights, *variables):
        seen = preprocess(images)
        x = {keys.IMAGES: seen}
        if variables:
            outputs, _ = model.stateless_call(*variables, x)
        else:
            outputs = model(x, training=False)
        logits = outputs[keys.LOGITS]
        others = ops.max(logits - 1e9 * labels, axis=-1)
        own_loss = model.row.loss(labels, logits, None, model.hparams)
        terms = [others - ops.sum(labels * logits, axis=-1), own_loss]
        if keys.RECONS in outputs:
            difference = seen - ops.cast(outputs[keys.RECONS], "float32")
            terms.append(-ops.square(difference))
        return sum(weights[n] * ops.sum(term) for n, term in enumerate(terms))

    if keras.backend.backend() == "jax":
        import jax

        gradient = jax.jit(jax.grad(objective))

        def of_weights(*arrays):
            groups = model.trainable_variables, model.non_trainable_variables
            return gradient(*arrays, *([v.value for v in g] for g in groups))

        return of_weights
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        @tf.function(jit_compile=jit_compile(model) is True)
        def by_tape(images, *others):
            with tf.GradientTape() as tape:
                tape.watch(images)
                value = objective(images, *others)
            return tape.gradient(value, images)

        return by_tape
    import torch

    def by_autograd(*arrays):
        images, *others = map(ops.convert_to_tensor, arrays)
        images.requires_grad_()
        return torch.autograd.grad(objective(images, *others), images)[0]

    return by_autograd
