import keras
import numpy as np
import pytest

from input_data import keys
from testing.gradients import check_whole_batch, one_by_one, to_numpy
from testing.small_models import SMALL, example_batch, small_model

RNG = np.random.default_rng(8)
WEIGHTS = np.float32([0.3, 1, 2.5])
# Factors of the terms of present and of absent classes, of three.
TERMS = {"capsule": (1 / 6, 1 / 12), "shared_capsule": (1 / 3, 1 / 12)}
TERMS |= dict.fromkeys(("deepcaps", "efficient_capsule"), (1, 0.5))


@pytest.mark.parametrize("num_targets", [1, 2, keys.SEVERAL_LABELS])
@pytest.mark.parametrize("name", TERMS)
def test_losses_and_gradients_equal_loops(name, num_targets):
    """For several labels a weight multiplies T_k max(0, m+ - |v_k|)^2 alone."""
    model = small_model(name, SMALL, num_targets)
    several = num_targets == keys.SEVERAL_LABELS
    x, y = example_batch(SMALL, num_targets or 1)
    if several:
        y[keys.LABELS] = np.float32([[1, 1, 0], [0, 0, 0], [0, 0, 1], [1] * 3])
    labels, targets = y[keys.LABELS], []
    if name == "capsule":  # with reconstructions of 2x2 pixels
        targets = keys.RECONS_BY_TARGET[: num_targets or 1]
    y |= {t: RNG.uniform(size=(4, 2, 2, 1)).astype("float32") for t in targets}

    def loops(scores, *images, weights=WEIGHTS):
        total = 0
        for n in range(4):
            loss = 0
            for k in range(3):
                if labels[n, k]:
                    factor = TERMS[name][0] * (weights[k] if several else 1)
                    loss += factor * max(0, 0.9 - scores[n, k]) ** 2
                else:
                    excess = max(0, scores[n, k] - 0.1)
                    loss += TERMS[name][1] * excess**2
            for target, image in zip(targets, images, strict=True):
                loss += 0.0005 * ((y[target][n] - image[n]) ** 2).sum()
            if not several:
                present = [weights[k] for k in range(3) if labels[n, k]]
                loss *= sum(present) / num_targets
            total += loss / 4
        return total

    def loss(scores, *images, training=True):
        outputs = {
            keys.LOGITS: scores,
            **dict(zip(targets, images, strict=True)),
        }
        with keras.StatelessScope():  # metrics would keep tracers of JAX
            return model.compute_loss(x, y, outputs, training=training)

    arguments = [RNG.uniform(size=(4, 3)).astype("float32")]
    arguments += [
        RNG.uniform(size=y[t].shape).astype("float32") for t in targets
    ]
    model.class_weights = WEIGHTS
    check_whole_batch(loss, arguments, one_by_one(loops))
    unweighted = pytest.approx(loops(*arguments, weights=np.ones(3)), rel=1e-5)
    assert to_numpy(loss(*arguments, training=False)) == unweighted
    outputs = dict(zip([keys.LOGITS, *targets], arguments, strict=True))
    _, losses = model.scores_and_losses(x, y, outputs)  # of an evaluation
    assert to_numpy(losses)[:, 0].mean() == unweighted
