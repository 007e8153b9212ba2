import base64
import functools
import io

import keras
import numpy as np
import pytest
from PIL import Image

from demonstration import exhibit
from input_data.features import ImageShape
from input_data.transforms import centring, fitting
from models.registry import MODELS, model_class
from old.errors import UserError
from testing import untrained
from training.config import Config
from visualisation.drawing import to_rgb, two_colours
from visualisation.routing import by_position, couplings_of

CAPSULE_MODELS = [
    name for name in MODELS if model_class(name).has_class_capsules
]


def save(
    folder,
    model="capsule",
    shape=untrained.DIGITS,
    num_targets=1,
    dataset="digits",
    weights=None,
    pad=None,
    **hparams,
):
    """Saves an untrained small network; gives the path of its checkpoint."""
    network, architecture = untrained.small(
        model, shape, num_targets, **hparams
    )
    if weights is not None:
        network.set_weights([weights + w for w in network.get_weights()])
    return untrained.save(
        folder, network, architecture, dataset=dataset, pad=pad
    )


def load(path):
    return exhibit.load(Config(train=False, checkpoint=path))


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    """Function that loads a saved network: tests share it, being compiled."""
    return functools.cache(
        lambda **network: load(save(tmp_path_factory.mktemp("n"), **network))
    )


def pixels(uri):
    """uint8 [H, W, 3] of a data URI."""
    start, _, content = uri.partition(",")
    assert start == "data:image/png;base64"
    image = Image.open(io.BytesIO(base64.b64decode(content)))
    return np.asarray(image)


def as_bytes(image):
    return np.rint(255 * image).astype(np.uint8)


def png(image):
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG")
    return buffer.getvalue()


def test_every_model_of_the_registry_that_has_capsules(make):
    image = np.random.default_rng(0).random((28, 28, 1), "float32")
    for name in CAPSULE_MODELS:
        shown = make(model=name)
        model = shown.subject.model
        found = shown.look(image)
        outputs = {
            key: keras.ops.convert_to_numpy(value)[0]
            for key, value in model({"images": image[None]}).items()
        }
        lengths = outputs["logits"]
        np.testing.assert_allclose(found["lengths"], lengths, atol=1e-4)
        np.testing.assert_allclose(
            found["capsules"], outputs["capsules"], atol=1e-4
        )
        assert found["predicted"] == [int(lengths.argmax())]
        couplings, _ = couplings_of(shown.subject, image[None])
        np.testing.assert_allclose(
            found["couplings"], by_position(couplings[:, 0]), atol=1e-4
        )
        seen = pixels(found["image"])
        assert (seen == as_bytes(to_rgb(image))).all()
        assert shown.description["decoder"] == (model.decoder is not None)
        if model.decoder is None:
            assert found["remake"] is None
        else:
            remake = pixels(found["remake"]).astype(int)
            expected = as_bytes(to_rgb(outputs["recons"]))
            assert abs(remake - expected).max() <= 1


def test_a_drawing_is_centred_as_mnist_is(make):
    shown = make(model="capsule")
    drawing = np.zeros((280, 280, 3), np.uint8)
    drawing[10:150, 20:50] = 255
    seen = pixels(shown.look_at_drawing(png(drawing))["image"])
    expected = centring.centre(drawing[..., 0], (28, 28))
    assert (seen == expected).all()
    assert seen[14, 14].all()
    assert not pixels(shown.look_at_drawing(png(0 * drawing))["image"]).any()


def test_other_drawings_and_files_are_scaled_as_by_predict(make):
    shown = make(model="shared_capsule", dataset="images")
    image = np.zeros((140, 280, 3), np.uint8)
    image[10:130, 20:50] = 255
    fitted = 255 * fitting.fit(image[..., :1], untrained.DIGITS, shown.data_set)
    for found in (
        shown.look_at_drawing(png(image)),
        shown.look_at_file(png(image), "a.png", False),
        shown.look_at_file(png(255 - image), "a.png", True),
    ):
        assert (pixels(found["image"]) == np.rint(fitted)).all()


@pytest.mark.parametrize("dataset", ["digits", "mnist"])
def test_files_are_padded_as_the_training_was(make, dataset):
    """With test images and without."""
    shape = ImageShape(36, 36, 1, 10)
    shown = make(shape=shape, dataset=dataset, pad=4)
    image = np.random.default_rng(2).integers(0, 256, (28, 28), np.uint8)
    found = pixels(shown.look_at_file(png(image), "a.png", False)["image"])
    assert (found[..., 0] == np.pad(image, 4)).all()


def test_two_objects_in_two_colours_where_they_were_drawn(make):
    shown = make(shape=ImageShape(36, 36, 1, 10), num_targets=2)
    drawing = np.zeros((280, 280, 3), np.uint8)
    # A wide stroke further up than pairs go, and a high one to the right.
    drawing[60:80, 60:220, [0, 2]] = 255
    drawing[60:220, 145:165, 1] = 255
    found = shown.look_at_drawing(png(drawing))
    seen = pixels(found["image"])[..., 0]
    rows, columns = (np.flatnonzero(seen.sum(axis=a) > 2550) for a in (1, 0))
    assert (rows[0] + rows[-1] + 1) / 2 == 18 - 4
    assert (columns[0] + columns[-1] + 1) / 2 == pytest.approx(18 + 2, abs=0.5)
    first, second = found["predicted"]
    assert first != second
    capsules = np.array(found["capsules"])
    remakes = shown.subject.redraw(np.stack([capsules] * 2), [first, second])
    expected = as_bytes(two_colours(*remakes)).astype(int)
    assert abs(pixels(found["remake"]) - expected).max() <= 1
    alone = shown.redraw([second], [found["capsules"][second]])
    assert abs(pixels(alone) - as_bytes(remakes[1]).astype(int)).max() <= 1


def test_a_moved_atom_changes_the_remake(make):
    shown = make(model="capsule")
    capsule = shown.look(np.ones((28, 28, 1), "float32"))["capsules"][4]
    moved = [capsule[0] + 0.5, *capsule[1:]]
    before, after = (
        pixels(shown.redraw([4], [atoms])) for atoms in (capsule, moved)
    )
    assert (before != after).any()


@pytest.mark.parametrize(
    ("classes", "capsules"),
    [
        ([10], [[0.0] * 5]),
        ([-1], [[0.0] * 5]),
        ([True], [[0.0] * 5]),
        ([1, 1], [[0.0] * 5] * 2),
        ([1, 2, 3], [[0.0] * 5] * 3),
        ([], []),
        ([1], [[0.0] * 4]),
        ([1], [[0.0] * 4 + [float("nan")]]),
        ([1], [[0.0] * 4 + [10**400]]),
        ([1], [[0.0] * 4 + ["0"]] * 2),
        ([1], [[0.0] * 4 + [[]]]),
        (1, [[0.0] * 5]),
        (None, None),
    ],
)
def test_what_cannot_be_redrawn(make, classes, capsules):
    shown = make(model="capsule")
    with pytest.raises(UserError, match="one or two classes by number"):
        shown.redraw(classes, capsules)


def test_test_images_right_and_wrong(make):
    shown = make(model="capsule")
    for is_right in (True, False):
        found = shown.look_at_test_image(is_right)
        assert (found["predicted"] == found["labels"]) == is_right


def test_without_the_data_there_is_all_else(make):
    shown = make(dataset="mnist")
    assert shown.description["test_images"] is False
    assert shown.description["name"] == "mnist, model.ckpt-0"
    assert shown.is_centred
    with pytest.raises(UserError, match="no test images: start demo.py with"):
        shown.look_at_test_image(True)


def test_settings_of_another_network_are_refused_without_data(tmp_path):
    path = save(tmp_path, model="capsule", dataset="mnist")
    with pytest.raises(UserError, match="routing is .* 99 was asked for"):
        exhibit.load(
            Config(train=False, checkpoint=path, hparams_override="routing=99")
        )


@pytest.mark.parametrize(
    ("named", "flags"),
    [("pairs", {"pairs": "below", "num_targets": 2}), ("color", {"color": 1})],
)
def test_how_images_look_is_refused_without_data(tmp_path, named, flags):
    path = save(tmp_path, model="capsule", dataset="mnist")
    config = Config(train=False, checkpoint=path, **flags)
    with pytest.raises(UserError, match=f"--{named} says how .* by --data_di"):
        exhibit.load(config)


def test_numbers_that_are_not_finite(make):
    shown = make(model="shared_capsule", weights=np.nan)
    with pytest.raises(UserError, match="numbers that are not finite"):
        shown.warm_up()
