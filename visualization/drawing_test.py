import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

from visualization import drawing, trained_model

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_channels_become_gray_colors_or_views_side_by_side(channels):
    image = RNG.uniform(size=(2, 5, channels))
    expected = image
    if channels != 3:
        views = np.concatenate([image[..., n] for n in range(channels)], axis=1)
        expected = np.stack([views] * 3, axis=-1)
    np.testing.assert_array_equal(drawing.to_rgb(image), expected)


def test_values_outside_0_and_1_are_scaled():
    for low, middle, high in ((-3.0, 0.0, 1.0), (0.0, 1.5, 2.0)):
        image = np.reshape((low, middle, high), (1, 3, 1))
        expected = 0, (middle - low) / (high - low), 1
        np.testing.assert_allclose(drawing.to_rgb(image)[0, :, 0], expected)


def test_the_first_of_two_objects_is_magenta_the_second_green():
    first, second = RNG.uniform(size=(2, 4, 5, 2))
    found = trained_model.two_colors(first, second)
    for channel, image in enumerate((first, second, first)):
        np.testing.assert_allclose(found[..., channel], image.mean(axis=-1))


def test_pictures_do_not_depend_on_the_users_settings():
    images = [np.zeros((2, 3, 1))]
    expected = drawing.image_grid(images, 1, "title", ["$a_b"])
    with matplotlib.rc_context({"text.usetex": True, "font.size": 30}):
        before = dict(matplotlib.rcParams)
        assert drawing.image_grid(images, 1, "title", ["$a_b"]) == expected
        assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize("name", ["x", "y"])
def test_logarithmic_axes_have_plain_numbers(name):
    axes = Figure().subplots()
    axes.plot([0.4, 2000], [0.4, 2000])
    axis = getattr(axes, f"{name}axis")
    drawing.make_logarithmic(axis, subs=(1, 5))
    assert axis.get_scale() == "log"
    axes.figure.draw_without_rendering()
    texts = [text.get_text() for text in axis.get_majorticklabels()]
    assert {"0.5", "1", "5", "500", "1,000"} <= set(texts)
    assert not any(t.get_text() for t in axis.get_minorticklabels())
    scales = {axes.get_xscale(), axes.get_yscale()}
    assert scales == {"log", "linear"}


def test_pictures_alone_are_also_written_in_a_second_format():
    files = {"a.png": drawing.png(Figure()), "b.csv": "1,2"}
    assert drawing.also_as(None, files) == files
    found = drawing.also_as("svg", files)
    assert found.keys() == {"a.png", "a.svg", "b.csv"}
    assert found["a.png"].startswith(b"\x89PNG")
    assert found["a.svg"].startswith(b"<?xml")
