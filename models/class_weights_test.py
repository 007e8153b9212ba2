import keras
import numpy as np
import pytest

from input_data import keys
from testing.gradients import check_whole_batch, one_by_one, to_numpy
from testing.small_models import SMALL, example_batch, small_model

WEIGHTS = np.float32([0.3, 1, 2.5])
# Factors of the terms of present and of absent classes, of three.
TERMS = {"capsule": (1 / 6, 1 / 12), "shared_capsule": (1 / 3, 1 / 12)}
TERMS |= dict.fromkeys(("deepcaps", "efficient_capsule"), (1, 0.5))


@pytest.mark.parametrize("num_targets", [1, 2, keys.SEVERAL_LABELS])
@pytest.mark.parametrize("name", TERMS)
def test_losses_and_gradients_equal_loops(name, num_targets):
    """For several labels a weight multiplies T_k max(0, m+ - |v_k|)^2 alone."""
    model = small_model(name, SMALL, num_targets)
    x, y = example_batch(SMALL, num_targets or 1)
    if several := num_targets == keys.SEVERAL_LABELS:
        y[keys.LABELS] = np.float32([[1, 1, 0], [0, 0, 0], [0, 0, 1], [1] * 3])
    labels, pixels = y[keys.LABELS], 0.0005 * (name == "capsule")
    scores, target, image = np.random.default_rng(8).random((3, 4, 3), "f")
    y[keys.RECONS] = target

    def loops(scores, image, weights=WEIGHTS):
        total = 0
        for n in range(4):
            loss = pixels * ((target[n] - image[n]) ** 2).sum()
            for k in range(3):
                if labels[n, k]:
                    term = TERMS[name][0] * max(0, 0.9 - scores[n, k]) ** 2
                    loss += term * (weights[k] if several else 1)
                else:
                    loss += TERMS[name][1] * max(0, scores[n, k] - 0.1) ** 2
            mean = labels[n] @ weights / (num_targets or 1)
            total += loss * (1 if several else mean)
        return total / 4

    def outputs(scores, image):
        return {keys.LOGITS: scores} | ({keys.RECONS: image} if pixels else {})

    def loss(*tensors):
        with keras.StatelessScope():  # metrics would keep tracers of JAX
            return model.compute_loss(x, y, outputs(*tensors))

    model.class_weights = WEIGHTS
    check_whole_batch(loss, [scores, image], one_by_one(loops))
    # Evaluations do not use the weights, nor does Keras' `evaluate`.
    made = x, y, outputs(scores, image)
    _, losses = model.scores_and_losses(*made)
    unweighted = loops(scores, image, weights=np.ones(3))
    for found in losses[:, 0], model.compute_loss(*made, training=False):
        assert to_numpy(found).mean() == pytest.approx(unweighted, rel=1e-5)
