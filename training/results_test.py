"""What is reported of an evaluation: text, JSON, summaries and folders."""

import dataclasses
import json
import pathlib

import numpy as np
import pytest

from config import Config
from input_data import registry
from resolve import with_defaults
from testing import untrained
from testing.events import scalars
from testing.tiny_files import NUM_TEST, write_arrays
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


def made(folder, classes, checkpoint=None, **settings):
    """`Predictions` of the images of the files `arrays`."""
    folder.mkdir(exist_ok=True)
    write_arrays(folder)
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
    losses = losses if checkpoint else None
    return Predictions(
        labels, logits, losses, pipeline, config, 8.5, checkpoint
    )


def checkpoint_in(folder):
    _, architecture = untrained.small()
    path = pathlib.Path(folder, "train", "model.ckpt-6")
    settings = {"seconds": 12.5, "seed": 3}
    return Checkpoint(6, architecture, settings, path=path)


def report(predictions, **settings):
    """Reports once, without pictures."""
    config = dataclasses.replace(predictions.config, **settings)
    checkpoint = predictions.checkpoint
    with Results(config, OneDevice()) as results:
        step = checkpoint.step if checkpoint else None
        results.report("title: ", predictions, step, draws=False)


@pytest.mark.parametrize(
    ("classes", "lines"),
    [
        (
            SINGLES,
            [
                "title: Total wrong predictions: 3, wrong percent: 42.86% "
                "(7 test images of arrays)"
            ],
        ),
        (
            PAIRS,
            [
                "title: Total wrong predictions: 5, wrong percent: 71.43% "
                "(7 test pairs of arrays)",
                # 8 of 14 objects are found.
                "wrong percent per object: 42.86%",
            ],
        ),
        (
            SEVERAL,
            [
                "title: Total wrong predictions: 5, wrong percent: 71.43% "
                "(7 test images of arrays)",
                "macro precision 0.9167 recall 0.6667 f1 0.7500",
                "micro precision 0.8750 recall 0.6364 f1 0.7368",
            ],
        ),
    ],
    ids=["singles", "pairs", "several"],
)
def test_lines(tmp_path, capsys, classes, lines):
    report(made(tmp_path, classes))
    assert capsys.readouterr().out.splitlines() == lines


def test_lines_of_pairs_that_do_not_overlap(tmp_path, capsys):
    report(made(tmp_path, PAIRS, pairs="below"))
    *_, line = capsys.readouterr().out.splitlines()
    assert line == (
        "Both classes right: 2 of 7 (28.57%); and both above 0.5: "
        "1 of 7 (14.29%)"
    )


def document_of(capsys, predictions, **settings):
    report(predictions, format="json", **settings)
    output, errors = capsys.readouterr()
    assert not errors
    (line,) = output.splitlines()
    return json.loads(line)


def test_a_document_of_single_objects(tmp_path, capsys):
    source = checkpoint_in(tmp_path)
    assert document_of(capsys, made(tmp_path, SINGLES, source)) == {
        "checkpoint": f"{tmp_path}/train/model.ckpt-6",
        "step": 6,
        "images": "test images of arrays",
        "num_examples": 7,
        "correct": 4,
        "almost_correct": 4,
        "confident": 3,
        "loss": 4.0,
        "wrong": 3,
        "wrong_percent": pytest.approx(300 / 7),
        "wrong_percent_per_object": pytest.approx(300 / 7),
        "wrong_examples": [2, 3, 4],
        "classes": [
            {"class": name, "labels": n, "found": found, "predictions": count}
            for name, n, found, count in (
                ("ant", 2, 1, 1),
                ("bee", 2, 2, 3),
                ("cat", 3, 1, 2),
                ("dog", 0, 0, 1),
            )
        ],
        "confusion_matrix": [
            [1, 0, 1, 0],
            [0, 2, 0, 0],
            [0, 1, 1, 1],
            [0, 0, 0, 0],
        ],
        "seconds": 12.5,
        "images_per_second": 8.5,
    }


def test_a_document_of_an_ensemble_on_pairs(tmp_path, capsys):
    ensemble = made(tmp_path, PAIRS)
    paths = {"checkpoint": "run{}", "num_trials": 2}
    document = document_of(capsys, ensemble, **paths)
    expected = {
        "checkpoint": "run{}",
        "images": "test pairs of arrays",
        "correct": 2,
        "almost_correct": 6,
        "confident": 1,
        "wrong": 5,
        "wrong_percent_per_object": pytest.approx(600 / 14),
        "wrong_examples": [2, 3, 4, 5, 6],
    }
    expected |= dict.fromkeys(("step", "loss", "seconds"))
    assert {name: document[name] for name in expected} == expected


def test_a_document_of_several_classes(tmp_path, capsys):
    source = checkpoint_in(tmp_path)
    source.run_settings.clear()
    document = document_of(capsys, made(tmp_path, SEVERAL, source))
    ant, bee, cat, dog = document["classes"]
    assert (ant["precision"], ant["recall"]) == pytest.approx((2 / 3, 2 / 3))
    assert (bee["f1"], cat["recall"], dog["precision"]) == (1, 0.5, 1)
    names = "labels", "found", "predictions"
    assert [cat[name] for name in names] == [4, 2, 2]
    assert document["macro"]["precision"] == pytest.approx(11 / 12)
    assert document["micro"]["recall"] == pytest.approx(7 / 11)
    assert document["wrong_percent_per_object"] is None
    assert document["seconds"] is None
    assert np.shape(document["confusion_matrix"]) == (5, 5)


def test_a_loss_that_is_not_finite_is_null(tmp_path, capsys):
    predictions = made(tmp_path, SINGLES, checkpoint_in(tmp_path))
    predictions.losses[3, 0] = np.nan
    assert document_of(capsys, predictions)["loss"] is None


def test_summaries(tmp_path):
    predictions = made(tmp_path, PAIRS, checkpoint_in(tmp_path))
    run = tmp_path / "run"
    report(predictions, summary_dir=str(run), format="json")
    found = scalars(run / "test")
    assert {tag: values[6] for tag, values in found.items()} == pytest.approx(
        {
            "correct_prediction": 2,
            "wrong_prediction": 5,
            "almost_wrong_prediction": 1,
            "accuracy": 2 / 7,
            "loss": 4,
            "total_loss": 4,
            "batch_classification_cost": 3.25,
        }
    )
    curve = (run / "test" / "curve.csv").read_text()
    assert curve.splitlines()[1:] == ["6,4,0.285714"]
    document = json.loads((run / "test" / "model.ckpt-6.json").read_text())
    assert document["step"] == 6


def folder_of(predictions, run):
    """The name of the folder that gets the results of an evaluation."""
    config = dataclasses.replace(predictions.config, summary_dir=str(run))
    with Results(config, OneDevice()) as results:
        results.report("", predictions, 6, draws=False)
        # The newest file of events.
        paths = run.glob("*/curve.csv")
        return max(paths, key=lambda p: p.stat().st_mtime_ns).parent.name


@pytest.mark.parametrize(
    ("classes", "settings"),
    [
        (SINGLES, {"eval_size": 5}),
        (SINGLES, {"pad": 2}),
        (SINGLES, {"distort": True}),
        (SINGLES, {"data_dir": "other"}),
        (SINGLES, {"checkpoint": "other"}),
        (PAIRS, {"seed": 1}),
        (PAIRS, {"pairs": "below"}),
        (PAIRS, {"shift": 1}),
    ],
)
def test_results_on_other_images_have_another_folder(
    tmp_path, classes, settings
):
    source, run = checkpoint_in(tmp_path / "run"), tmp_path / "run"
    usual = made(tmp_path / "data", classes, source)
    if "checkpoint" in settings:
        source = checkpoint_in(tmp_path / "other")
        other = dataclasses.replace(usual, checkpoint=source)
    elif "data_dir" in settings:
        other = made(tmp_path / "other", classes, source)
        path = tmp_path / "other" / "x_test.npy"
        np.save(path, 255 - np.load(path))
        pipeline = registry.load(other.config, train=False)
        other = dataclasses.replace(other, pipeline=pipeline)
    else:
        other = made(tmp_path / "data", classes, source, **settings)
    assert folder_of(usual, run) == "test"
    assert folder_of(other, run) == "test_2"
    assert folder_of(usual, run) == "test"
    assert folder_of(other, run) == "test_2"
