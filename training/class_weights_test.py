import numpy as np
import pytest

import experiment
from common.errors import UserError
from config import Config
from input_data import registry
from input_data.images import labeled_images, make_pipeline
from resolve import with_defaults
from testing import tiny_files
from testing.saved_arrays import assert_same_state
from testing.small_models import overrides
from training.class_weights import class_weights
from training.start import _warn_if_unequal


def pipeline_of(*counts, num_targets=1, several=None):
    labels = np.repeat(range(len(counts)), counts) if counts else several
    images, names = tiny_files.random_images(len(labels), 8, 8), ("a=", *"bcde")
    names = names[: len(counts) or 3]
    data = labeled_images("x", images, labels, len(names), names)
    return make_pipeline(data, with_defaults(Config(num_targets=num_targets)))


def test_balanced_weights_equal_those_of_scikit_learn(tmp_path):
    expected = [0.44444444, 1, 1.81818182, 5, 1]  # no image: 1
    for num_targets in (1, 2):
        pipeline = pipeline_of(45, 20, 11, 4, 0, num_targets=num_targets)
        found = class_weights("balanced", pipeline)
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    # Of 6 labels of three classes, 3, 1 and 2 are of a class.
    several = np.array([[1, 0, 1], [1, 1, 0], [0] * 3, [1, 0, 1]])
    found = class_weights("balanced", pipeline_of(several=several))
    np.testing.assert_allclose(found, [2 / 3, 2, 1], rtol=1e-6)
    images = tiny_files.random_images(3, 36, 36, 1)
    pairs = (tiny_files.mnist_example(p, images) for p in ((3, 1), (1, 2)))
    tiny_files.write_records(tmp_path / "x-00000-of-00001", pairs)
    stored = registry.load(Config(num_targets=2, data_dir=f"{tmp_path}/x@1"), 1)
    assert stored.class_counts().tolist() == [0, 2, 1, 1, *[0] * 6]
    assert not stored.has_labels_in_memory


@pytest.mark.parametrize(
    ("text", "reason"),
    [("e=2", "'e'"), ("balance", "expected balanced"), ("", "expected")]
    + [("b=2,", "expected balanced"), ("b=x", "'x'"), ("b=2,b=2", "one weight")]
    + [(f"b={number}", "one weight") for number in ("0", "-1", "nan", "inf")],
)
def test_named_weights(text, reason):
    found = class_weights("c=3, a==0.5", pipeline_of(1, 1, 1))
    np.testing.assert_array_equal(found, np.float32([0.5, 1, 3]))
    with pytest.raises(UserError, match=f"--class_weight.*{reason}"):
        class_weights(text, pipeline_of(1, 1, 1))


def test_trainings_store_weights_and_warn_once(tmp_path, capsys):
    for counts in ((5, 1), (0, 4, 0, 1)):
        _warn_if_unequal(pipeline_of(*counts))
    assert capsys.readouterr().out == ""
    tiny_files.write_arrays(tmp_path)
    np.save(tmp_path / "y_train", np.r_[np.zeros(13, "uint8"), 1, 2])

    def train(name, max_steps, **settings):
        settings |= {"dataset": "arrays", "data_dir": str(tmp_path)}
        settings |= {"hparams_override": overrides("capsule"), "batch_size": 8}
        settings |= {
            "max_steps": max_steps,
            "summary_dir": f"{tmp_path}/{name}",
        }
        experiment.run(Config(**settings))
        return capsys.readouterr().out

    warning = "Warning: 13 training images of ant, 1 of bee; --class_weight"
    assert train("a", 2).count(warning) == 1
    assert "Warning" not in train("b", 2, class_weight="balanced")
    with pytest.raises(AssertionError):
        assert_same_state(*(tmp_path / n / "train/model.ckpt-2" for n in "ab"))
    note = "Note: class_weight was {} and is now {}\n".format
    output = train("a", 3, class_weight="balanced") + train("a", 4)
    assert note(None, "balanced") in output
    assert note("balanced", None) in output
    assert "Warning" not in output
