"""Models that are not the reference's, by the ordinary commands."""

import numpy as np
import pytest

import checkpoints
import experiment
from evaluation.evaluator import Evaluator
from evaluation.prediction import load_network
from input_data import features as keys
from testing.saved_arrays import saved
from testing.small_models import overrides
from training.config import Config


@pytest.mark.parametrize(
    ("model", "num_targets"),
    [("efficient_capsule", 1), ("efficient_capsule", 2), ("matrix_capsule", 1)],
)
def test_resumed_training_is_bit_identical(tmp_path, model, num_targets):
    def train(name, steps):
        # Losses and rates that depend on the step must go on with it.
        values = {
            "matrix_capsule": {
                "margin_steps": 4,
                "decay_steps": 2,
                "routing": 2,
            }
        }
        experiment.run(
            Config(
                summary_dir=str(tmp_path / name),
                model=model,
                num_targets=num_targets,
                hparams_override=overrides(model, **values.get(model, {})),
                batch_size=8,
                max_steps=steps,
            )
        )

    train("whole", 4)
    train("parts", 2)
    train("parts", 4)
    whole, parts = (
        saved(tmp_path / name / "train" / "model.ckpt-4")
        for name in ("whole", "parts")
    )
    assert whole.keys() == parts.keys()
    for name, array in whole.items():
        np.testing.assert_array_equal(array, parts[name], err_msg=name)


@pytest.mark.parametrize(
    ("model", "hparams", "steps", "share"),
    [
        (
            "efficient_capsule",
            {"first_channels": 8, "middle_channels": 8, "learning_rate": 0.01},
            60,
            0.5,
        ),
        # What it learns is tested beside it: here it would take too long.
        ("matrix_capsule", {}, 2, 0.0),
    ],
)
def test_it_learns_digits_and_predicts_as_its_checkpoint(
    tmp_path, model, hparams, steps, share
):
    settings = Config(
        summary_dir=str(tmp_path),
        model=model,
        hparams_override=overrides(model, **hparams),
        batch_size=32,
        max_steps=steps,
        summary_step=steps,
        shift=0,
    )
    experiment.run(settings)
    path = tmp_path / "train" / f"model.ckpt-{steps}"
    evaluator = Evaluator(settings)
    found = evaluator.predict(checkpoints.open(path))
    assert found.score.correct > share * len(found.labels)
    network, _ = load_network(str(path))
    ((x, _),) = found.pipeline.evaluation_batches(20, stop=20)
    predicted = network.predict_on_batch(x[keys.IMAGES])[keys.LOGITS]
    np.testing.assert_allclose(predicted, found.logits[:20], atol=1e-6)
