import dataclasses

import numpy as np
import pytest

import checkpoints
from devices.parallel import OneDevice
from evaluation.evaluator import Evaluator, predict
from input_data import features as keys
from input_data.datasets import cifar10
from input_data.features import ImageShape
from old.errors import UserError
from testing import untrained
from testing.tiny_files import write_cifar10
from testing.tiny_subject import NUM_EXAMPLES, make_subject
from training.config import Config


@pytest.mark.parametrize("remake", [True, False])
def test_the_loss_is_that_of_training(remake):
    subject = make_subject(2, remake=remake)
    predictor = OneDevice().predictor(subject.model)
    found = predict(predictor, subject.pipeline, 100)
    assert found.losses.shape == (NUM_EXAMPLES,)
    ((x, y),) = subject.pipeline.evaluation_batches(NUM_EXAMPLES)
    loss = subject.model.compute_loss(x, y, subject.model(x))
    assert found.score.loss == pytest.approx(float(loss), rel=1e-5)


@pytest.mark.parametrize(("trained", "seen"), [(1, 2), (2, 1)])
def test_the_loss_is_of_the_targets_that_are_seen(trained, seen, tmp_path):
    network = untrained.small("capsule", ImageShape(36, 36, 1, 10), trained)
    path = untrained.save(tmp_path, *network)
    config = Config(train=False, num_targets=seen, pad=4, eval_size=20)
    evaluator = Evaluator(config)
    found = evaluator.predict(checkpoints.open(path))
    ((x, y),) = found.pipeline.evaluation_batches(20)
    model = evaluator.model
    outputs = model({name: x[name] for name in x}, training=False)
    difference = [
        ((y[name] - np.array(outputs[name])) ** 2).sum(axis=(1, 2, 3))
        for name in keys.RECONS_BY_TARGET[:seen]
    ]
    cost = model.classification_loss(y[keys.LOGITS], outputs, None)
    np.testing.assert_allclose(
        found.losses, np.array(cost) + 0.0005 * np.sum(difference, axis=0), 1e-4
    )


def save_for_cifar10(folder, model):
    network = untrained.small(model, ImageShape(24, 24, 3, 10))
    path = untrained.save(folder, *network, dataset="cifar10")
    return checkpoints.open(path)


def test_thirteen_crops_are_averaged(tmp_path):
    write_cifar10(tmp_path)
    config = Config(train=False, data_dir=str(tmp_path), crops=13)
    evaluator = Evaluator(config)
    found = evaluator.predict(save_for_cifar10(tmp_path / "saved", "capsule"))
    images = cifar10.read_cifar10(str(tmp_path), training=False).images
    offsets = [(0, 0)]
    for pixels in (1, 2, 3):
        for down in (-pixels, pixels):
            for right in (-pixels, pixels):
                offsets.append((down, right))
    assert len(offsets) == 13
    expected = np.zeros_like(found.logits)
    for down, right in offsets:
        crops = images[:, 4 + down : 28 + down, 4 + right : 28 + right]
        for number, crop in enumerate(crops.astype("float64")):
            seen = (crop - crop.mean()) / crop.std()
            lengths = evaluator.model.predict_on_batch(
                {"images": seen[None].astype("float32")}
            )["logits"][0]
            expected[number] += lengths / lengths.sum() / 13
    np.testing.assert_allclose(found.logits, expected, rtol=1e-4, atol=1e-6)
    middle = Evaluator(Config(train=False, data_dir=str(tmp_path)))
    assert found.score.loss == pytest.approx(
        middle.predict(checkpoints.open(tmp_path / "saved")).score.loss
    )


def test_crops_are_for_capsules_and_photographs(tmp_path):
    write_cifar10(tmp_path)
    config = Config(train=False, data_dir=str(tmp_path), crops=13)
    with pytest.raises(UserError, match="--crops is for models of capsules"):
        Evaluator(config).predict(save_for_cifar10(tmp_path, "baseline"))
    pairs = dataclasses.replace(config, num_targets=2, pairs="below")
    with pytest.raises(UserError, match="--crops=13 is for single images"):
        Evaluator(pairs).predict(save_for_cifar10(tmp_path / "y", "capsule"))
    digits = Config(train=False, dataset="digits", crops=13)
    with pytest.raises(UserError, match="--crops=13 does not apply to --data"):
        Evaluator(digits).predict(save_for_cifar10(tmp_path / "x", "capsule"))
