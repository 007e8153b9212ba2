import numpy as np
import pytest
import tensorflow as tf

from evaluation import mistake_images
from evaluation.mistakes import Mistake

NAMES = ["cat", "automobile", "a name that is far too long"]


def mistake(shape=(8, 8, 1), **values):
    defaults = {"labels": [0], "predictions": [1], "values": [0.93]}
    return Mistake(image=np.zeros(shape), **{**defaults, **values})


def pixels(png):
    return tf.io.decode_png(png, channels=3).numpy()


@pytest.mark.parametrize("num_classes", [5, 43])
def test_cells_with_counts_stand_out(num_classes):
    matrix = np.zeros((num_classes, num_classes))
    matrix[1, 3] = 2
    names = [str(number) for number in range(num_classes)]
    empty, full = (
        pixels(mistake_images.confusion_matrix_png(counts, names, "title"))
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
    assert mistake_images._verdict(mistake(), ["7", "3"]) == (
        "true 7\npredicted 3 (0.93)"
    )
    two = mistake(labels=[0, 2], predictions=[1, 2], values=[0.9, 0.456])
    assert mistake_images._verdict(two, ["7", "3", "5"]) == (
        "true 7 and 5\npredicted 3 (0.90)\nand 5 (0.46)"
    )


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("count", [1, 5, 7])
def test_grids_of_any_depth_and_number(depth, count):
    png = mistake_images.wrong_predictions_png(
        [mistake((8, 12, depth))] * count, NAMES, "title"
    )
    height, width, _ = pixels(png).shape
    assert height > 60
    # Up to five in a row, each wider than its text of 21 characters.
    assert width > 120 * min(count, 5)
