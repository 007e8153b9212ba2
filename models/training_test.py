"""Models that are not the reference's, by the ordinary commands."""

import dataclasses
import pathlib

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


def require_same_predictions(settings, path):
    """A network that is loaded by itself says what the evaluation says."""
    found = Evaluator(settings).predict(checkpoints.open(path))
    network, _ = load_network(str(path))
    ((x, _),) = found.pipeline.evaluation_batches(20, stop=20)
    predicted = network.predict_on_batch(x[keys.IMAGES])[keys.LOGITS]
    np.testing.assert_allclose(predicted, found.logits[:20], atol=1e-6)
    return found


@pytest.mark.parametrize(
    ("model", "num_targets", "hparams"),
    [
        ("efficient_capsule", 2, {}),
        # Losses and rates that depend on the step must go on with it.
        (
            "matrix_capsule",
            1,
            {"margin_steps": 4, "decay_steps": 2, "routing": 2},
        ),
    ],
)
def test_resumed_training_is_bit_identical(
    tmp_path, model, num_targets, hparams
):
    whole, parts = (
        Config(
            summary_dir=str(tmp_path / name),
            model=model,
            num_targets=num_targets,
            hparams_override=overrides(model, **hparams),
            batch_size=8,
            max_steps=4,
            save_step=2,
        )
        for name in ("whole", "parts")
    )
    experiment.run(whole)
    trained, resumed = (
        pathlib.Path(config.summary_dir) / "train" / "model.ckpt-4"
        for config in (whole, parts)
    )
    half = trained.with_name("model.ckpt-2")
    experiment.run(dataclasses.replace(parts, max_steps=2))
    experiment.run(parts)
    before, after, again = map(saved, (half, trained, resumed))
    assert after.keys() == again.keys()
    for name, array in after.items():
        np.testing.assert_array_equal(array, again[name], err_msg=name)
    # Four normalisations with four variables each, two of them moving.
    norms = [name for name in after if "norm" in name and "vars" in name]
    changed = sum((after[name] != before[name]).any() for name in norms)
    assert changed == (16 if model == "efficient_capsule" else 0)
    if model == "matrix_capsule":
        require_same_predictions(whole, trained)


def test_it_learns_digits_and_predicts_as_its_checkpoint(tmp_path):
    settings = Config(
        summary_dir=str(tmp_path),
        model="efficient_capsule",
        hparams_override=overrides(
            "efficient_capsule",
            first_channels=8,
            middle_channels=8,
            learning_rate=0.01,
        ),
        batch_size=32,
        max_steps=60,
        summary_step=60,
        shift=0,
    )
    experiment.run(settings)
    path = tmp_path / "train" / "model.ckpt-60"
    found = require_same_predictions(settings, path)
    assert found.score.correct > 0.5 * len(found.labels)
