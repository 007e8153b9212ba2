import keras
import pytest

from input_data import keys
from models.classifier import Classifier
from models.table import MODELS, Model
from testing.small_models import build_model, small_model
from testing.untrained import DIGITS

# By hand: positions of the output times weights of the kernel.
SABOUR = 20 * 20 * 81 * 256 + 6 * 6 * 81 * 256 * 256 + 1152 * 8 * 160
EFFICIENT = (
    24 * 24 * 25 * 32
    + 22 * 22 * 9 * 32 * 64
    + 20 * 20 * 9 * 64 * 64
    + 9 * 9 * 9 * 64 * 128
    + 81 * 128
    + 16 * 8 * 160
)
SHARED = (
    26 * 26 * 9 * 64
    + 24 * 24 * 9 * 64 * 64
    + 10 * 10 * 9 * 64 * 128
    + 8 * 8 * 9 * 128 * 128
    + 8 * 8 * 128 * 160
)
BASELINE = 24 * 24 * 25 * 512 + 8 * 8 * 25 * 512 * 256 + 4096 * 1024 + 1024 * 10


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("capsule", SABOUR),
        ("efficient_capsule", EFFICIENT),
        ("shared_capsule", SHARED),
        ("baseline", BASELINE),
    ],
)
def test_published_networks(name, expected):
    model = build_model(name, DIGITS, 1, MODELS[name].hparams())
    assert model.multiply_adds() == expected


def test_a_layer_without_a_rule_gives_none():
    layer = keras.layers.PReLU()
    for unknown in (layer, keras.Sequential([layer])):
        row = Model(lambda images, _, f=unknown: {keys.LOGITS: f(images)})
        model = Classifier(row, DIGITS, 1, row.hparams())
        assert model.multiply_adds() is None


SELF_ROUTING = ((1, 1), (1, 2), (1, 1), (1, 2), (1, 1), (1, 2), (1, 1))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("baseline", ()),
        ("capsule", ((9, 1, "VALID"), (9, 2, "VALID"))),
        (
            "shared_capsule",
            tuple((n, 2 if n == 2 else 1, "VALID") for n in (3, 3, 2, 3, 3)),
        ),
        # In each of three cells, the layers halve, first and second.
        (
            "deepcaps",
            tuple((3, n, "SAME") for n in (1, 2, 1, 1, 2, 1, 1, 2, 1, 1)),
        ),
        ("vb_capsule", ((5, 2, "SAME"), (3, 2, "VALID"), (3, 1, "VALID"))),
        # Padding of 1 has the centers of kernels that are smaller by 2.
        (
            "self_routing",
            (*((*pair, "VALID") for pair in SELF_ROUTING), (3, 1, "SAME")),
        ),
    ],
)
def test_receptive_fields_are_those_of_the_layers_before(name, expected):
    assert small_model(name).receptive_field() == expected
