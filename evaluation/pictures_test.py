import numpy as np
import pytest
import tensorflow as tf

from evaluation import pictures
from evaluation.evaluator import Predictions
from input_data import registry
from input_data.options import Options
from input_data.splits import Split

NAMES = ["cat", "automobile", "a name that i…"]


def mistake(shape=(8, 8, 1), **values):
    defaults = {"labels": [0], "predictions": [1], "values": [0.93]}
    return pictures.Mistake(image=np.zeros(shape), **{**defaults, **values})


def pixels(png):
    return tf.io.decode_png(png, channels=3).numpy()


@pytest.mark.parametrize("num_classes", [5, 43])
def test_cells_with_counts_stand_out(num_classes):
    matrix = np.zeros((num_classes, num_classes))
    matrix[1, 3] = 2
    names = [str(number) for number in range(num_classes)]
    empty, full = (
        pixels(pictures.confusion_matrix_png(counts, names, "title"))
        for counts in (0 * matrix, matrix)
    )
    assert empty.shape == full.shape
    rows, columns, _ = np.nonzero(empty != full)
    height, width, _ = full.shape
    # One cell: true class 1 is in the upper part, predicted 3 right of it.
    for size, places in ((height, rows), (width, columns)):
        assert 20 < np.ptp(places) < 50
        assert np.ptp(places) < size / 5
    assert rows.mean() < columns.mean()


def test_texts_tell_classes_and_values():
    assert pictures._verdict(mistake(), ["7", "3"]) == (
        "true 7\npredicted 3 (0.93)"
    )
    two = mistake(labels=[0, 2], predictions=[1, 2], values=[0.9, 0.456])
    assert pictures._verdict(two, ["7", "3", "5"]) == (
        "true 7 and 5\npredicted 3 (0.90)\nand 5 (0.46)"
    )


@pytest.mark.parametrize(("depth", "count"), [(1, 1), (2, 5), (3, 7)])
def test_grids_of_any_depth_and_number(depth, count):
    png = pictures.wrong_predictions_png(
        [mistake((8, 12, depth))] * count, NAMES, "title"
    )
    height, width, _ = pixels(png).shape
    assert height > 60
    # Up to five in a row, each wider than its text of 21 characters.
    assert width > 120 * min(count, 5)


@pytest.mark.parametrize("num_targets", [1, 2])
def test_first_mistakes_hold_their_images_classes_and_values(num_targets):
    options = Options(num_targets=num_targets, eval_size=250)
    pipeline = registry.load("digits", Split.TEST, options)
    ((x, y),) = pipeline.evaluation_batches(250)
    labels = y["logits"]
    logits = (0.8 * labels).astype("float32")
    numbers = [0, 99, 100, 249]  # in three batches
    for number in numbers:
        others = np.flatnonzero(labels[number] == 0)
        logits[number, others[:2]] = 0.9, 0.85
    found = pictures.first_mistakes(pipeline, labels, logits, numbers)
    assert len(found) == 4
    for number, mistake in zip(numbers, found, strict=True):
        np.testing.assert_array_equal(mistake.image, x["images"][number])
        assert mistake.labels == np.flatnonzero(labels[number]).tolist()
        others = [c for c in range(10) if c not in mistake.labels]
        assert mistake.predictions == others[:num_targets]
        assert mistake.values == pytest.approx([0.9, 0.85][:num_targets])
    losses = np.zeros(len(labels), "float32")
    some_wrong = Predictions(labels, logits, losses, pipeline)
    assert set(pictures.draw(some_wrong, 7)) == {
        "confusion_matrix",
        "wrong_predictions",
    }
    all_right = Predictions(labels, labels, losses, pipeline)
    assert set(pictures.draw(all_right, 7)) == {"confusion_matrix"}
