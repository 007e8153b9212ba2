import dataclasses
import json
import pathlib
from unittest.mock import ANY

import numpy as np
import pytest

from config import Config
from input_data import registry
from models.architecture import Architecture
from resolve import with_defaults
from testing.events import scalars
from testing.small_models import small_hparams
from testing.tiny_files import NUM_TEST, write_arrays
from testing.untrained import DIGITS
from training.checkpoint import Checkpoint
from training.results import Results
from training.scores import Predictions
from training.strategies import OneDevice

# Labels and predictions of `NUM_TEST` images or pairs of four classes.
SINGLES = [[0, 1, 2, 2, 0, 1, 2], [0, 1, 1, 3, 2, 1, 2]]
PAIRS = [
    [(0, 1), (0, 2), (2, 3), (1, 3), (0, 3), (1, 2), (2, 3)],
    [(0, 1), (0, 2), (1, 3), (1, 2), (2, 3), (0, 2), (0, 1)],
]
SEVERAL = [
    [(), (0,), (1, 2), (0, 1, 3), (2,), (2, 3), (0, 2)],
    [(), (0,), (1,), (0, 1), (0, 2), (3,), (2,)],
]


def k_hot(classes):
    return np.stack([np.eye(4)[list(np.atleast_1d(c))].sum(0) for c in classes])


def made(folder, classes, source=None, moved=0, **settings):
    """`Predictions` of the images of the files `arrays`."""
    folder.mkdir(exist_ok=True)
    write_arrays(folder)
    np.save(folder / "y_test", np.roll(np.load(folder / "y_test.npy"), moved))
    if classes is SEVERAL:
        np.save(folder / "y_test", k_hot(classes[0]).astype("uint8"))
        np.save(folder / "y_train", np.eye(4, dtype="uint8")[np.arange(15) % 4])
    settings = {"eval_size": NUM_TEST, **settings}
    if classes is PAIRS:
        settings["num_targets"] = 2
    settings |= {"dataset": "arrays", "data_dir": str(folder)}
    config = with_defaults(Config(train=False, **settings))
    pipeline = registry.load(config, train=False)
    labels, predicted = (k_hot(c)[: config.eval_size] for c in classes)
    # The longest capsule of one image is too short to be sure.
    logits = 0.2 + 0.7 * predicted
    if classes is not SEVERAL:
        logits[0] -= 0.5
    losses = np.arange(len(labels))[:, None] + np.array([[1.0, 0.25]])
    losses = losses if source else None
    return Predictions(labels, logits, losses, pipeline, config, 8.5, source)


def checkpoint_in(folder, **settings):
    architecture = Architecture("capsule", DIGITS, 1, small_hparams("capsule"))
    path = pathlib.Path(folder, "train", "model.ckpt-6")
    return Checkpoint(6, architecture, settings, path=path)


def report(predictions, **settings):
    """Reports once; returns the name of the folder of the summaries, if any."""
    config = dataclasses.replace(predictions.config, **settings)
    checkpoint = predictions.checkpoint
    with Results(config, OneDevice()) as results:
        step = checkpoint.step if checkpoint else None
        results.report("title: ", predictions, step, draws=step is None)
    if config.summary_dir:
        paths = pathlib.Path(config.summary_dir).glob("*/curve.csv")
        return max(paths, key=lambda p: p.stat().st_mtime_ns).parent.name
    return None


WRONG = "title: Total wrong predictions: {} (7 test {} of arrays)".format
PERCENTS = "wrong_percent", "wrong_percent_per_object"
SINGLE = (
    {"step": 6, "images": "test images of arrays", "num_examples": 7}
    | {"correct": 4, "almost_correct": 4, "confident": 3, "loss": 4.0}
    | dict.fromkeys(PERCENTS, pytest.approx(300 / 7))
    | {"wrong": 3, "wrong_examples": [2, 3, 4]}
    | {"seconds": 12.5, "images_per_second": 8.5}
)
SINGLE["confusion_matrix"] = [[1, 0, 1, 0], [0, 2, 0, 0], [0, 1, 1, 1], [0] * 4]
SINGLE["classes"] = [
    {"class": name, "labels": n, "found": found, "predictions": count}
    | dict.fromkeys(("precision", "recall", "f1"), ANY)  # scores_test.py
    for name, n, found, count in (
        *(("ant", 2, 1, 1), ("bee", 2, 2, 3)),
        *(("cat", 3, 1, 2), ("dog", 0, 0, 1)),
    )
]
SINGLE["balanced_error_percent"] = pytest.approx(100 * (1 - 11 / 18))
SINGLE["macro"] = SINGLE["wrong_percent_interval"] = ANY
ENSEMBLE = (
    dict.fromkeys(("step", "loss", "seconds"))
    | {"checkpoint": "run{}", "images": "test pairs of arrays"}
    | {"correct": 2, "almost_correct": 6, "confident": 1, "wrong": 5}
    | {"wrong_percent_per_object": pytest.approx(600 / 14)}
    | {"wrong_examples": [2, 3, 4, 5, 6]}
)


@pytest.mark.parametrize(
    ("classes", "lines", "expected"),
    [
        (SINGLES, [WRONG("3, wrong percent: 42.86%", "images")], SINGLE),
        (
            PAIRS,  # 8 of 14 objects are found
            [
                WRONG("5, wrong percent: 71.43%", "pairs"),
                "wrong percent per object: 42.86%",
                "Both classes right: 2 of 7 (28.57%); and both above 0.5: "
                "1 of 7 (14.29%)",
            ],
            ENSEMBLE,
        ),
        (
            SEVERAL,
            [
                WRONG("5, wrong percent: 71.43%", "images"),
                "macro precision 0.9167 recall 0.6667 f1 0.7500",
                "micro precision 0.8750 recall 0.6364 f1 0.7368",
            ],
            {"wrong_percent_per_object": None, "loss": None},
        ),
    ],
    ids=["singles", "pairs", "several"],
)
def test_text_and_documents(tmp_path, capsys, classes, lines, expected):
    source, ensemble = checkpoint_in(tmp_path, seconds=12.5, seed=3), {}
    if classes is PAIRS:
        source, ensemble = None, {"checkpoint": "run{}", "num_trials": 2}
        ensemble["pairs"] = "below"
    predictions = made(tmp_path, classes, source, **ensemble)
    if classes is SEVERAL:  # null in JSON
        predictions.losses[3, 0] = np.nan
    report(predictions)
    *found, last = capsys.readouterr().out.splitlines()
    if classes is not SEVERAL:
        assert last.startswith("balanced error: ")
        *found, last = found
    assert found == lines
    assert last.startswith("95% confidence interval of the error: ")
    report(predictions, format="json")
    output, errors = capsys.readouterr()
    document = json.loads(output)
    assert (errors, output.count("\n")) == ("", 1)
    assert {name: document[name] for name in expected} == expected
    if classes is SINGLES:
        assert document.keys() == {*expected, "checkpoint"}
        assert document["checkpoint"] == f"{tmp_path}/train/model.ckpt-6"
    if classes is SEVERAL:
        names = "labels", "found", "predictions", "precision", "recall", "f1"
        cat = [document["classes"][2][name] for name in names]
        assert cat == pytest.approx([4, 2, 2, 1, 0.5, 2 / 3])
        averages = document["macro"]["recall"], document["micro"]["recall"]
        assert averages == pytest.approx((2 / 3, 7 / 11))
        assert np.shape(document["confusion_matrix"]) == (5, 5)


def test_summaries(tmp_path):
    predictions = made(tmp_path, PAIRS, checkpoint_in(tmp_path))
    run = tmp_path / "run"
    report(predictions, summary_dir=str(run), format="json")
    found = scalars(run / "test")
    counts = {"correct": 2, "wrong": 5, "almost_wrong": 1}
    assert {tag: values[6] for tag, values in found.items()} == pytest.approx(
        {f"{name}_prediction": count for name, count in counts.items()}
        | {"accuracy": 2 / 7, "loss": 4, "total_loss": 4}
        | {"batch_classification_cost": 3.25}
    )
    curve = (run / "test" / "curve.csv").read_text()
    assert curve.splitlines()[1:] == ["6,4,0.285714"]
    document = json.loads((run / "test" / "model.ckpt-6.json").read_text())
    assert document["step"] == 6


@pytest.mark.parametrize(
    ("classes", "settings"),
    [
        *((SINGLES, {"trained": "other"}), (SINGLES, {"training": "other"})),
        *((SINGLES, {"moved": 1}), (SINGLES, {"eval_size": 5})),
        *((SINGLES, {"pad": 2}), (SINGLES, {"distort": True})),
        *((PAIRS, {"seed": 1}), (PAIRS, {"pairs": "below"})),
        (PAIRS, {"shift": 1}),
    ],
)
def test_other_results_have_another_folder(tmp_path, classes, settings):
    def evaluated(trained="run", training="first", **settings):
        source = checkpoint_in(tmp_path / trained, id=training)
        return made(tmp_path / "data", classes, source, **settings)

    both = (evaluated(), "test"), (evaluated(**settings), "test_2")
    for predictions, folder in 2 * both:
        assert report(predictions, summary_dir=f"{tmp_path}/run") == folder
