import types

import numpy as np
import pytest

from input_data import keys
from input_data.registry import Split
from testing import splits
from testing.pictures import assert_images, cells
from training.scores import Predictions
from visualization import drawing, evaluation_figures

draw_matrix = evaluation_figures.confusion_matrix_png


def test_numbers_and_colors_of_a_confusion_matrix():
    matrix = np.array([[5.0, 2, 0], [0, 6, 0.25], [0, 0, 0]])
    names = ["ant", "b" * 14, "c" * 15]
    (axes,) = draw_matrix(matrix, names, "errors").figure.axes
    numbers = {t.get_position(): t.get_text() for t in axes.texts}
    # The position is (column, row).
    assert numbers == {(0, 0): "5", (1, 0): "2", (1, 1): "6", (2, 1): "0.25"}
    colors = [text.get_color() for text in axes.texts]
    assert colors == ["white", "white", "white", "black"]
    (image,) = axes.images
    expected = [[5 / 7, 2 / 7, 0], [0, 6 / 6.25, 0.25 / 6.25], [0, 0, 0]]
    np.testing.assert_allclose(image.get_array(), expected)
    assert (image.norm.vmin, image.norm.vmax) == (0, 1)
    white, dark = image.cmap(image.norm([0.0, 1.0]))
    assert sum(white) > sum(dark)
    for axis, kind in ((axes.xaxis, "predicted"), (axes.yaxis, "true")):
        assert axis.get_label_text() == f"{kind} class"
        shown = [text.get_text() for text in axis.get_ticklabels()]
        assert shown == [*names[:2], "c" * 13 + "…"]
    assert axes.get_title() == "errors"
    assert axes.yaxis_inverted()  # the first class is at the top


def test_numbers_fit_into_the_cells_and_long_names_are_turned():
    (axes,) = draw_matrix(np.diag([7, 12345]), ["a", "bcde"], "").figure.axes
    sizes = [text.get_fontsize() for text in axes.texts]
    assert sizes == pytest.approx([9, 9 * 3 / 5])
    assert [t.get_rotation() for t in axes.get_xticklabels()] == [90, 90]
    (axes,) = draw_matrix(np.eye(2), ["a", "bcd"], "").figure.axes
    assert [t.get_rotation() for t in axes.get_xticklabels()] == [0, 0]
    assert draw_matrix(np.eye(101), ["a"] * 101, "title") is None


def test_wrong_predictions_stand_with_their_classes_and_logits():
    pipeline = splits.load("digits", Split.TEST, eval_size=33)
    ((x, y),) = pipeline.evaluation_batches(33)
    labels = y[keys.LABELS]
    true = labels.argmax(axis=1)
    predicted = np.where(np.arange(33) % 11, (true + 3) % 10, true)
    logits = 0.8 * np.eye(10)[predicted] + np.arange(33)[:, None] / 1000
    made = Predictions(labels, logits, None, pipeline, None, 1.0)
    picture = evaluation_figures.wrong_predictions_png(made, "Step 7")
    assert picture.figure.get_suptitle() == "Step 7: first 25 of 30 wrong"
    shown, found = [n for n in range(33) if n % 11][:25], cells(picture)
    assert_images(found, map(drawing.to_rgb, x[keys.IMAGES][shown]))
    assert [cell.title for cell in found] == [
        f"true {true[n]}\npredicted {predicted[n]} ({0.8 + n / 1000:.2f})"
        for n in shown
    ]
    right = Predictions(labels, labels, None, pipeline, None, 1.0)
    assert evaluation_figures.wrong_predictions_png(right, "") is None


def test_classes_are_named_and_predictions_ranked():
    one = [0, 1, 0], [0.1, 0.2, 0.9], "true bee\npredicted cat (0.90)"
    two = [1, 0, 1], [0.71, 0.82, 0.6], "true ant and cat\npredicted bee (0.82)"
    none = [0, 0, 0], [0.1, 0.2, 0.3], "true none\npredicted none"
    pipeline, names = types.SimpleNamespace(), ["ant", "bee", "cat"]
    for num_targets, (labels, logits, text) in enumerate((none, one, two)):
        sizes = {"num_targets": num_targets, "names": names}
        pipeline.spec = types.SimpleNamespace(**sizes)
        rows = np.array([[0, 0, 0], labels]), np.array([[0, 0, 0], logits])
        made = Predictions(*rows, None, pipeline, None, 1.0)
        text += "\nand ant (0.71)" if num_targets == 2 else ""
        assert evaluation_figures.verdict(made, 1) == text


def test_learning_curves_show_loss_and_accuracy_by_step(tmp_path):
    rows = {
        # The last line is being written.
        "train": "step,loss,accuracy\n10,4,0.25\n20,2,0.5\n30,1",
        "test": "step,loss,accuracy\n20,3,0.4\n",
        "validation": "step,loss,accuracy\n",  # has only begun
    }
    for part, text in rows.items():
        (tmp_path / part).mkdir()
        (tmp_path / part / "curve.csv").write_text(text)
    figure = evaluation_figures.learning_curve_png(tmp_path).figure
    assert figure.get_suptitle() == tmp_path.name
    expected = {
        "loss": ("log", [[20, 3]], [[10, 4], [20, 2]]),
        "accuracy": ("linear", [[20, 0.4]], [[10, 0.25], [20, 0.5]]),
    }
    for axes, title in zip(figure.axes, expected, strict=True):
        scale, test, train = expected[title]
        looks = axes.get_title(), axes.get_yscale(), axes.get_xlabel()
        assert looks == (title, scale, "step")
        assert [
            (ln.get_label(), ln.get_marker(), ln.get_xydata().tolist())
            for ln in axes.lines
        ] == [("test", "o", test), ("train", "", train)]  # one is a point
        texts = [text.get_text() for text in axes.get_legend().get_texts()]
        assert texts == ["test", "train"]
    loss, accuracy = ([ln.get_color() for ln in a.lines] for a in figure.axes)
    assert loss == accuracy
    marked = evaluation_figures.learning_curve_png(tmp_path, 20).figure
    for axes in marked.axes:
        line = axes.lines[-1]
        assert (line.get_label(), list(line.get_xdata())) == ("best", [20, 20])
    # Before the first point.
    empty = evaluation_figures.learning_curve_png(tmp_path / "none").figure
    assert [axes.get_legend() for axes in empty.axes] == [None, None]
