import numpy as np
import pytest
import tensorflow as tf

from checkpoints import Metadata
from checkpoints.architecture import Architecture
from evaluation.counts import Score
from input_data import features as keys
from input_data.features import ImageShape
from models.capsule import HParams
from testing.events import events_of, hparams_row
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


def pictures(folder, step):
    """The images of one `reconstruction`, uint8 [height, width, depth]."""
    (event,) = events_of(folder).Tensors("reconstruction")
    assert event.step == step
    _, _, *found = event.tensor_proto.string_val
    return [tf.io.decode_png(picture).numpy() for picture in found]


def as_bytes(images):
    return np.round(images * 255).astype("uint8")


def shown(folder, images, targets, remakes, step=3):
    """The pictures of a batch whose remakes are known."""
    names = keys.RECONS_BY_TARGET
    x = {keys.IMAGES: images}
    y = dict(zip(names, targets, strict=False))
    outputs = dict(zip(names, remakes, strict=False))
    writer = summaries.SummaryWriter(folder)
    writer.reconstructions(lambda given: outputs, x, y, step)
    return pictures(folder, step)


def test_a_remake_stands_under_its_target_beside_that_of_the_second(tmp_path):
    rng = np.random.default_rng(1)
    images, *others = rng.uniform(size=(5, 2, 4, 6, 1)).astype("float32")
    targets, remakes = others[:2], others[2:]
    for number, picture in enumerate(shown(tmp_path, images, targets, remakes)):
        assert picture.shape == (3 * 4, 2 * 6, 3)
        for column in range(2):
            for row, expected in enumerate(
                (images, targets[column], remakes[column])
            ):
                place = picture[4 * row :, 6 * column :, 0][:4, :6]
                difference = (
                    place.astype(int) - as_bytes(expected[number])[..., 0]
                )
                assert abs(difference).max() <= 1


def test_two_standardised_channels_are_shown_side_by_side(tmp_path):
    images = np.zeros((1, 2, 2, 2), "float32")
    images[..., 0], images[..., 1] = -3.0, 1.0
    remakes = np.full((1, 2, 2, 2), 0.5, "float32")
    (picture,) = shown(tmp_path, images, [images], [remakes])
    assert picture.shape == (6, 4, 3)  # grey, and without transparency
    for rows in (slice(0, 2), slice(2, 4)):
        assert (picture[rows, :2] == 0).all()
        assert (picture[rows, 2:] == 255).all()
    assert (abs(picture[4:].astype(int) - round(3.5 / 4 * 255)) <= 1).all()


def test_the_scalars_of_an_evaluation_are_the_counts():
    score = Score(
        num_examples=10, correct=6, almost_correct=9, confident=5, loss=0.25
    )
    assert summaries.evaluation_scalars(score) == {
        "correct_prediction": 6,
        "wrong_prediction": 4,
        "almost_wrong_prediction": 1,
        "accuracy": 0.6,
        "loss": 0.25,
    }


def test_those_of_a_training_are_shares_and_counts_of_a_batch():
    logs = {
        "batch_classification_cost": 0.5,
        "loss": 0.75,
        "accuracy": 0.5,
        "almost_accuracy": 0.75,
        "reconstruction_error": 9.0,
    }
    assert summaries.training_scalars(logs, 8) == {
        "batch_classification_cost": 0.5,
        "loss": 0.75,
        "total_loss": 0.75,
        "accuracy": 0.5,
        "correct_prediction_batch": 4,
        "almost_correct_batch": 6,
        "reconstruction_error": 9.0,
    }
