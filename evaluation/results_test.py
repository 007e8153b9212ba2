import socket
import types

import numpy as np
import tensorflow as tf

from evaluation.evaluator import Predictions
from evaluation.results import Results
from input_data import registry
from input_data.options import Options
from input_data.splits import Split
from testing.events import events_of
from training import curve
from training.config import Config


def test_summaries_of_an_evaluation(tmp_path):
    options = Options(num_targets=1, eval_size=40)
    pipeline = registry.load("digits", Split.TEST, options)
    ((_, y),) = pipeline.evaluation_batches(40)
    labels = y["logits"]
    logits = labels.copy()
    logits[:30] = 1 - labels[:30]
    losses = np.linspace(0, 1, 40)
    folder = tmp_path / "test"
    predictions = Predictions(labels, logits, losses, pipeline)
    with Results(Config(train=False, summary_dir=str(tmp_path))) as results:
        results.tell("Ensemble: ", predictions)  # leaves no files
        assert not folder.exists()
        results.tell(
            "",
            predictions,
            types.SimpleNamespace(step=17, architecture=None),
        )
    assert len(list(folder.glob("events*"))) == 1
    assert curve.read(folder / curve.FILE) == {17: (0.5, 0.25)}
    assert (tmp_path / "learning_curve.png").is_file()
    events = events_of(folder)
    for tag in ("confusion_matrix", "wrong_predictions"):
        (event,) = events.Tensors(tag)
        assert event.step == 17
        width, height, *pictures = event.tensor_proto.string_val
        (picture,) = pictures
        image = tf.io.decode_png(picture).numpy()
        assert image.shape == (int(height), int(width), 3)
        assert np.ptp(image) > 0
    for tag, value in (
        ("wrong_prediction", 30),
        ("accuracy", 0.25),
        ("loss", 0.5),
    ):
        (event,) = events.Tensors(tag)
        assert event.step == 17
        np.testing.assert_allclose(tf.make_ndarray(event.tensor_proto), value)


def test_leftovers_of_killed_evaluations_are_removed(tmp_path):
    killed = f"{socket.gethostname()}.{2**22 + 1}"  # no process has it
    folders = (tmp_path, tmp_path / "validation")
    left = [folder / f".some.json.{killed}.partial" for folder in folders]
    for path in left:
        path.mkdir(parents=True)
    config = Config(train=False, validate=True, summary_dir=str(tmp_path))
    with Results(config) as results:
        results.prepare()
    assert not any(path.exists() for path in left)
