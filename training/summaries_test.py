import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorboard.plugins.hparams import metadata

from common.errors import UserError
from input_data import keys
from models.architecture import Architecture
from models.table import find_model
from testing import untrained
from testing.events import events_of, scalars
from testing.untrained import DIGITS
from training import summaries, verbose_summaries
from training.checkpoint import Checkpoint
from training.tf1_checkpoint import tf1_name


def written(folder, write):
    """The values of the one summary that a function writes."""
    writer = tf.summary.create_file_writer(str(folder))
    with writer.as_default():
        write()
    writer.close()
    (path,) = folder.iterdir()
    events = tf.compat.v1.train.summary_iterator(str(path))
    (value,) = [value for event in events for value in event.summary.value]
    return value


@pytest.mark.parametrize("shape", [(3, 4, 5), (1000,), (1,)])
def test_histograms_equal_those_of_tensorflow(tmp_path, shape):
    values = np.random.default_rng(0).normal(size=shape).astype("float32")
    # Ours leave out what is not finite.
    more = np.float32([np.nan, *values.ravel(), np.inf])
    ours = written(
        tmp_path / "ours",
        lambda: verbose_summaries._write_histogram("a/b", more, 7),
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


def test_statistics_of_weights_and_activations(tmp_path):
    network, _ = untrained.small()
    images = np.random.default_rng(0).uniform(size=(3, 28, 28, 1))
    writer = summaries.SummaryWriter(tmp_path)
    images = images.astype("float32")
    verbose_summaries.write_layers(writer, network, images, step=4)
    found = scalars(tmp_path)
    for weight in network.trainable_weights:
        values = keras.ops.convert_to_numpy(weight)
        expected = {"mean": values.mean(), "stddev": values.std()}
        expected |= {"min": values.min(), "max": values.max()}
        for name, value in expected.items():
            tag = f"{tf1_name(weight)}/{name}"
            assert found[tag][4] == pytest.approx(value, abs=1e-6)
    activations = network.activations(images)
    shares = []
    for name, tensor in activations.items():
        share = (keras.ops.convert_to_numpy(tensor) == 0).mean()
        assert found[f"{name}/sparsity"] == {4: pytest.approx(share)}
        shares.append(share)
    assert any(0 < share < 0.4 or share > 0.6 for share in shares)


def test_settings_are_on_the_hparams_page(tmp_path):
    directory = tmp_path / "run" / "train"
    for rate, seed in ((0.1, 6), (0.01, 7)):  # resumed with other settings
        hparams = find_model("capsule").hparams(learning_rate=rate)
        architecture = Architecture("capsule", DIGITS, 1, hparams)
        training = {"seed": seed, "pad": None, "seconds": 9.0}
        writer = summaries.SummaryWriter(directory)
        writer.scalars({"rate": rate}, seed)
        writer.hparams(Checkpoint(0, architecture, training))
    assert not (directory / "curve.csv").exists()  # needs loss and accuracy
    tag = metadata.SESSION_START_INFO_TAG
    content = events_of(directory).SummaryMetadata(tag).plugin_data.content
    info = metadata.parse_session_start_info_plugin_data(content)
    settings = info.hparams
    assert info.group_name == str(directory.resolve())  # one row for each run
    assert settings["learning_rate"].number_value == 0.01
    assert settings["seed"].number_value == 7
    assert not {"pad", "seconds"} & set(settings)


def test_curves_replace_repeated_steps(tmp_path):
    path = tmp_path / "curve.csv"
    curve = summaries.Curve(path)
    for step in (10, 20, 30):
        curve.add(step, 1 / step, 0.5)
    path.write_text(path.read_text() + "40,0.1")  # a killed process
    curve = summaries.Curve(path)
    curve.add(20, 0.25, 0.75)
    curve.add(40, 0.125, 1.0)
    rows = "10,0.1,0.5 20,0.25,0.75 30,0.0333333,0.5 40,0.125,1"
    text = path.read_text()
    assert text.split() == ["step,loss,accuracy", *rows.split()]
    text = text.replace("0.75", "high")
    path.write_text(text)
    with pytest.raises(UserError, match=r"curve\.csv: .*high"):
        summaries.Curve(path)
    assert path.read_text() == text


def test_reconstructions_stand_under_their_targets(tmp_path):
    rng = np.random.default_rng(1)
    images, *others = rng.uniform(size=(5, 2, 4, 6, 1)).astype("float32")
    targets, reconstructions = others[:2], others[2:]
    x = {keys.IMAGES: images}
    y = dict(zip(keys.RECONS_BY_TARGET, targets, strict=True))
    outputs = dict(zip(keys.RECONS_BY_TARGET, reconstructions, strict=True))
    writer = summaries.SummaryWriter(tmp_path)
    arguments = lambda given: outputs, x, y, 3
    verbose_summaries.write_reconstructions(writer, *arguments)
    (event,) = events_of(tmp_path).Tensors("reconstruction")
    assert event.step == 3
    _, _, *pictures = event.tensor_proto.string_val
    assert len(pictures) == 2
    for number, picture in enumerate(pictures):
        rows = [
            np.concatenate([each[number] for each in row], axis=1)
            for row in ([images, images], targets, reconstructions)
        ]
        found = tf.io.decode_png(picture).numpy()
        expected = 255 * np.concatenate(rows).repeat(3, axis=-1)
        np.testing.assert_allclose(found, expected, atol=1)
