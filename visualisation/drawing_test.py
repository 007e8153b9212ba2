import matplotlib
import numpy as np
import pytest
import tensorflow as tf
from matplotlib.figure import Figure

from common.errors import UserError
from visualisation import drawing

RNG = np.random.default_rng(5)


def test_grey_and_colours_stay_as_they_are():
    grey = RNG.uniform(size=(4, 5, 1))
    np.testing.assert_array_equal(
        drawing.to_rgb(grey), np.concatenate([grey] * 3, axis=-1)
    )
    colours = RNG.uniform(size=(4, 5, 3))
    np.testing.assert_array_equal(drawing.to_rgb(colours), colours)


def test_two_views_stand_side_by_side():
    views = RNG.uniform(size=(4, 5, 2))
    shown = drawing.to_rgb(views)
    assert shown.shape == (4, 10, 3)
    np.testing.assert_array_equal(shown[:, :5, 0], views[..., 0])
    np.testing.assert_array_equal(shown[:, 5:, 2], views[..., 1])


def test_standardised_images_are_scaled():
    image = np.array([[[-2.0], [0.0]], [[1.0], [3.0]]])
    np.testing.assert_allclose(
        drawing.to_rgb(image)[..., 1], [[0.0, 0.4], [0.6, 1.0]]
    )


def test_two_colours_by_hand():
    first = np.array([[[1.0], [0.0], [1.0], [0.5]]])
    second = np.array([[[0.0], [1.0], [1.0], [0.0]]])
    np.testing.assert_array_equal(
        drawing.two_colours(first, second),
        [[[1, 0, 1], [0, 1, 0], [1, 1, 1], [0.5, 0, 0.5]]],
    )


def test_mosaic_puts_each_image_in_its_place():
    images = RNG.uniform(size=(2, 3, 4, 5, 3))
    rows = [list(row) for row in images]
    rows[1][0] = None
    gap = drawing.GAP
    canvas = drawing.mosaic(rows)
    assert canvas.shape == (2 * 4 + gap, 3 * 5 + 2 * gap, 3)
    for y in range(2):
        for x in range(3):
            top, left = y * (4 + gap), x * (5 + gap)
            place = canvas[top : top + 4, left : left + 5]
            expected = 1.0 if rows[y][x] is None else images[y, x]
            np.testing.assert_array_equal(
                place, np.broadcast_to(expected, place.shape)
            )
    np.testing.assert_array_equal(canvas[4 : 4 + gap], 1.0)
    np.testing.assert_array_equal(canvas[:, 5 : 5 + gap], 1.0)


def test_labels_are_at_the_middles_of_the_images():
    # Pixels 0..4, 7..11 and 14..18 with gaps of 2: middles 2, 9, 16.
    assert drawing.GAP == 2
    assert drawing._centres(3, 19) == [2, 9, 16]


def test_a_mosaic_is_a_png_with_room_for_its_labels():
    image = np.zeros((4, 4, 3))
    pngs = [
        drawing.mosaic_png([[image]], "title", [label], {line: [text]})
        for label, line, text in (
            ("x", "", "column"),
            ("a much longer label of the row", "", "column"),
            ("x", "a much longer label of the line", "column"),
            ("x", "", "a column of wide cells"),
        )
    ]
    narrow, *wider = (tf.io.decode_png(png).shape[1] for png in pngs)
    for width in wider:
        assert width > narrow + 100


def test_rows_without_an_image_are_left_out():
    image = np.zeros((4, 4, 3))
    heights = [
        tf.io.decode_png(
            drawing.right_beside_wrong_png(
                [{"input": image, "remake": remake}] * 2,
                "title",
                [{"true": "7", "predicted": "3"}] * 2,
                num_right=1,
            )
        ).shape[0]
        for remake in (image, None)
    ]
    assert heights[1] < heights[0] - 100


def test_names_that_are_too_long_are_cut():
    names = ["cat", "automobile", "a name that is far too long"]
    assert [drawing.shortened(name) for name in names] == [
        "cat",
        "automobile",
        "a name that i…",
    ]


def test_too_large_a_picture_is_refused():
    with pytest.raises(UserError, match="choose fewer"):
        drawing.png(Figure(figsize=(400, 2)))


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ((0.2, 2.5), ["0.2", "0.3", "0.5", "1", "2"]),
        ((90_000, 1_100_000), ["100,000", "200,000", "300,000"]),
        # Where there would be one tick at most.
        ((0.6, 0.81), ["0.6", "0.625", "0.65"]),
        ((1.1, 1.4), ["1.1", "1.15", "1.2"]),
        ((0.02, 2_000), ["0.1", "1", "10", "100", "1,000"]),
    ],
)
def test_the_ticks_of_a_logarithmic_axis_are_numbers(limits, expected):
    with matplotlib.rc_context(drawing.STYLE):
        axes = Figure().add_subplot()
        axes.set_ylim(limits)
        drawing.make_logarithmic(axes.yaxis)
        assert axes.get_yscale() == "log"
        ticks = {
            label.get_text(): label.get_position()[1]
            for label in axes.yaxis.get_ticklabels(which="both")
            if limits[0] <= label.get_position()[1] <= limits[1]
            and label.get_text()
        }
    assert list(ticks)[: len(expected)] == expected
    for text, place in ticks.items():
        assert float(text.replace(",", "")) == pytest.approx(place)
