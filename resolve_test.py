import pytest

from common.errors import UserError
from config import Config
from resolve import for_evaluation, inherit, with_defaults
from testing import untrained
from training.checkpoint import Checkpoint


def trained(**training):
    return Checkpoint(0, None, training, path="x")


def test_a_checkpoint_supplies_what_was_not_given():
    training = {"dataset": "mnist", "pad": 4, "distort": True, "seed": 3}
    training["viewpoints"] = "azimuth"
    for given, expected in (
        ({}, {"dataset": "mnist", "pad": 4, "distort": True}),
        ({"pad": 0}, {"dataset": "mnist", "pad": 0, "distort": True}),
        ({"dataset": "mnist"}, {"dataset": "mnist", "pad": 4}),
        ({"dataset": "svhn"}, {"dataset": "svhn", "pad": None}),
        ({}, {"viewpoints": "azimuth", "seed": 0}),
        ({"viewpoints": "elevation"}, {"viewpoints": "elevation"}),
    ):
        inherited = inherit(Config(**given), trained(**training))
        assert {n: getattr(inherited, n) for n in expected} == expected
    # That of the digits supplies nothing for files.
    given = Config(data_dir="x")
    assert inherit(given, trained(dataset="digits", pad=4)) == given


@pytest.mark.parametrize("name", ["huggingface:mnist", "kaggle:a/b:1.0.0"])
def test_a_checkpoint_names_no_data_set_that_may_run_code(name):
    training = {"dataset": f"tfds:{name}"}
    with pytest.raises(UserError, match=f"--dataset=tfds:{name}"):
        inherit(Config(), trained(**training))
    inherit(Config(**training), trained(**training))
    for harmless in ("mnist/a:3.0.*", "mnist:3.0.1"):
        inherit(Config(), trained(dataset=f"tfds:{harmless}"))


def test_data_set_shift_and_pad_by_default():
    assert with_defaults(Config(data_dir="x")).dataset == "mnist"
    assert with_defaults(Config()).dataset == "digits"
    pairs = {"num_targets": 2}
    for given, shift, pad in (
        *(({}, 2, 0), ({"dataset": "svhn"}, 0, 0), ({"augment": True}, 0, 0)),
        ({"augment": True, "shift": 3, "pad": 1}, 3, 1),
        *((pairs, 4, 4), ({**pairs, "shift": 0, "pad": 0}, 0, 0)),
        ({**pairs, "pairs": "below", "train": False}, 4, 0),
        # Record files of images that are shifted and padded.
        ({**pairs, "data_dir": "pairs@10"}, 0, 0),
    ):
        config = with_defaults(Config(**given))
        assert (config.shift, config.pad, config.color) == (shift, pad, False)
        assert (config.distort, config.model) == (False, "capsule")


def test_an_evaluation_is_of_the_network_of_the_checkpoint():
    _, architecture = untrained.small("baseline", num_targets=2)
    checkpoint = Checkpoint(0, architecture, {"dataset": "digits"}, path="x")
    config = for_evaluation(Config(train=False), checkpoint)
    assert (config.model, config.num_targets) == ("baseline", 2)
    with pytest.raises(UserError, match="x does not record its data set"):
        for_evaluation(Config(train=False), trained())
