import types

import numpy as np
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import (
    EventAccumulator,
)

from evaluation import jobs as evaluation
from evaluation.counts import score
from input_data import registry
from input_data.splits import Split
from training.summaries import SummaryWriter


def test_summaries_of_an_evaluation(tmp_path):
    options = registry.Options(num_targets=1, eval_size=40)
    pipeline = registry.load("digits", Split.TEST, options)
    ((_, y),) = pipeline.evaluation_batches(40)
    labels = y["logits"]
    logits = labels.copy()
    logits[:30] = 1 - labels[:30]
    evaluation._summarise(
        SummaryWriter(tmp_path),
        pipeline,
        labels,
        logits,
        score(labels, logits, 1),
        types.SimpleNamespace(step=17, architecture=None),
    )
    assert len(list(tmp_path.iterdir())) == 1
    events = EventAccumulator(str(tmp_path), size_guidance={"tensors": 0})
    events.Reload()
    for tag in ("confusion_matrix", "wrong_predictions"):
        (event,) = events.Tensors(tag)
        assert event.step == 17
        width, height, *pictures = event.tensor_proto.string_val
        (picture,) = pictures
        image = tf.io.decode_png(picture).numpy()
        assert image.shape == (int(height), int(width), 3)
        assert np.ptp(image) > 0
    (event,) = events.Tensors("wrong_prediction")
    assert (event.step, tf.make_ndarray(event.tensor_proto)) == (17, 30)
