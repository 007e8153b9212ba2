import numpy as np
import pytest
import tensorflow as tf

from checkpoints import Metadata
from checkpoints.architecture import Architecture
from input_data.features import ImageShape
from models.capsule import HParams
from testing.events import hparams_row
from training import summaries


def written(folder, write):
    """The values of the one summary that a function writes."""
    writer = tf.summary.create_file_writer(str(folder))
    with writer.as_default():
        write()
    writer.close()
    (path,) = folder.iterdir()
    (value,) = [
        value
        for event in tf.compat.v1.train.summary_iterator(str(path))
        for value in event.summary.value
    ]
    return value


@pytest.mark.parametrize("shape", [(3, 4, 5), (1000,), (1,)])
def test_histograms_are_tensorflows(tmp_path, shape):
    values = np.random.default_rng(0).normal(size=shape).astype("float32")
    ours = written(
        tmp_path / "ours",
        lambda: summaries._write_histogram("a/b", values, 7),
    )
    theirs = written(
        tmp_path / "theirs", lambda: tf.summary.histogram("a/b", values, 7)
    )
    assert ours.tag == theirs.tag
    assert ours.metadata.plugin_data == theirs.metadata.plugin_data
    ours, theirs = (tf.make_ndarray(v.tensor) for v in (ours, theirs))
    if values.size == 1:  # ours has an interval around it, theirs none
        assert ours[:, 2].sum() == theirs[:, 2].sum() == 1
        return
    np.testing.assert_allclose(ours[:, :2], theirs[:, :2], atol=1e-6)
    np.testing.assert_array_equal(ours[:, 2], theirs[:, 2])


def test_histograms_leave_out_what_is_not_finite(tmp_path):
    values = np.array([1.0, np.nan, 2.0, np.inf], "float32")
    value = written(
        tmp_path / "a", lambda: summaries._write_histogram("a", values, 1)
    )
    buckets = tf.make_ndarray(value.tensor)
    assert buckets[0, 0] == 1
    assert buckets[-1, 1] == 2
    assert buckets[:, 2].sum() == 2


def test_histograms_of_values_a_rounding_apart(tmp_path):
    value = np.float32(0.101)
    values = np.array([value, np.nextafter(value, np.float32(1))])
    written_value = written(
        tmp_path / "a", lambda: summaries._write_histogram("a", values, 1)
    )
    assert tf.make_ndarray(written_value.tensor)[:, 2].sum() == 2


def test_settings_of_a_resume_replace_those_before(tmp_path):
    directory = tmp_path / "run" / "train"
    rows = []
    for learning_rate in (0.001, 0.01):
        architecture = Architecture(
            "capsule",
            ImageShape(28, 28, 1, 10),
            1,
            HParams(learning_rate=learning_rate),
        )
        writer = summaries.SummaryWriter(directory)
        writer.hparams(Metadata(0, architecture, {"seed": 7}))
        writer.scalars({"loss": 0.5, "accuracy": 1.0}, step=10)
        row, settings = hparams_row(directory)
        assert settings["learning_rate"].number_value == learning_rate
        assert settings["seed"].number_value == 7
        rows.append(row)
    assert rows[0] != rows[1]
    assert all(row.startswith("run/train ") for row in rows)
