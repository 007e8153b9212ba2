import math

import keras
import pytest

from input_data import keys
from models.classifier import Classifier
from models.table import MODELS, Model
from testing.small_models import build_model, small_model
from testing.untrained import DIGITS

# Output positions, kernel positions, channels of input and output.
EFFICIENT = [(24**2, 25, 1, 32), (22**2, 9, 32, 64), (20**2, 9, 64, 64)]
EFFICIENT += [(81, 9, 64, 128), (81, 128), (16, 8, 160)]
SHARED = [(26**2, 9, 1, 64), (24**2, 9, 64, 64), (100, 9, 64, 128)]
SHARED += [(64, 9, 128, 128), (64, 128, 160)]
BASELINE = [(24**2, 25, 512), (64, 25, 512, 256), (4096, 1024), (1024, 10)]
PUBLISHED = {"capsule": [(20**2, 81, 256), (36, 81, 256, 256), (1152, 8, 160)]}
PUBLISHED |= {"efficient_capsule": EFFICIENT, "shared_capsule": SHARED}
PUBLISHED |= {"baseline": BASELINE}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_networks(name):
    model = build_model(name, DIGITS, 1, MODELS[name].hparams())
    assert model.multiply_adds() == sum(map(math.prod, PUBLISHED[name]))


def test_a_layer_without_a_rule_gives_none():
    layer = keras.layers.PReLU()
    for unknown in (layer, keras.Sequential([layer])):
        row = Model(lambda images, _, f=unknown: {keys.LOGITS: f(images)})
        model = Classifier(row, DIGITS, 1, row.hparams())
        assert model.multiply_adds() is None


def fields(sizes, strides, padding):
    return [(size, n, padding) for size, n in zip(sizes, strides, strict=True)]


def test_receptive_fields_are_those_of_the_layers_before():
    halves = 1, 2, 1, 2, 1, 2, 1
    for name, expected in {
        "baseline": [],
        "capsule": fields((9, 9), (1, 2), "VALID"),
        "shared_capsule": fields((3, 3, 2, 3, 3), (1, 1, 2, 1, 1), "VALID"),
        # In each of three cells, the layers halve, first and second.
        "deepcaps": fields([3] * 10, (1, *(2, 1, 1) * 3), "SAME"),
        "vb_capsule": [(5, 2, "SAME"), *fields((3, 3), (2, 1), "VALID")],
        # Padding of 1 has the centers of kernels that are smaller by 2.
        "self_routing": [*fields([1] * 7, halves, "VALID"), (3, 1, "SAME")],
    }.items():
        assert list(small_model(name).receptive_field()) == expected
