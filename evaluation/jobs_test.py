import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import (
    EventAccumulator,
)

from evaluation import jobs as evaluation
from evaluation.evaluator import score
from input_data import registry
from input_data.splits import Split
from training.summaries import SummaryWriter


@pytest.mark.parametrize("num_targets", [1, 2])
@pytest.mark.parametrize("num_wrong", [0, 30])
def test_summaries_of_an_evaluation(tmp_path, num_targets, num_wrong):
    pipeline = registry.load(
        "digits",
        Split.TEST,
        registry.Options(num_targets=num_targets, eval_size=40),
    )
    ((_, y),) = pipeline.evaluation_batches(40)
    labels = y["logits"]
    logits = labels.copy()
    logits[:num_wrong] = 1 - labels[:num_wrong]
    evaluation._summarise(
        SummaryWriter(tmp_path),
        pipeline,
        labels,
        logits,
        score(labels, logits, num_targets),
        17,
    )
    assert len(list(tmp_path.iterdir())) == 1
    events = EventAccumulator(str(tmp_path), size_guidance={"tensors": 0})
    events.Reload()
    found = {
        tag: events.Tensors(tag)
        for tag in events.Tags()["tensors"]
        if events.SummaryMetadata(tag).plugin_data.plugin_name == "images"
    }
    expected = {"confusion_matrix"}
    if num_wrong:
        expected.add("wrong_predictions")
    assert set(found) == expected
    for (event,) in found.values():
        assert event.step == 17
        width, height, *pictures = event.tensor_proto.string_val
        (picture,) = pictures
        image = tf.io.decode_png(picture).numpy()
        assert image.shape == (int(height), int(width), 3)
        assert np.ptp(image) > 0
    (event,) = events.Tensors("wrong_prediction")
    assert (event.step, tf.make_ndarray(event.tensor_proto)) == (17, num_wrong)
