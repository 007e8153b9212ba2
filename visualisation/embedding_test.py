import io

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format
from tensorboard.plugins import projector

from common.errors import UserError
from testing.tiny_subject import make_subject
from visualisation import embedding


@pytest.mark.parametrize("num_targets", [1, 2])
def test_files_hold_capsules_labels_and_images(num_targets):
    subject = make_subject(num_targets, remake=False)
    files = embedding.make(subject, 7)
    examples = list(subject.examples())[:7]

    table = np.loadtxt(io.BytesIO(files["capsules.tsv"]), delimiter="\t")
    assert table.shape == (7, 50)
    np.testing.assert_allclose(
        table[3, 10:15], examples[3].capsules[2], rtol=1e-5, atol=1e-7
    )

    header, *lines = files["metadata.tsv"].decode().splitlines()
    assert header.split("\t") == ["label", "prediction", "right"]
    for line, example in zip(lines, examples, strict=True):
        label, prediction, right = line.split("\t")
        assert label == " and ".join(map(str, sorted(example.labels)))
        predictions = map(str, sorted(example.predictions))
        assert prediction == " and ".join(predictions)
        assert right == ("yes" if example.is_right else "no")

    pixels = tf.io.decode_png(files["sprite.png"]).numpy()
    size = subject.pipeline.spec.shape.height
    assert pixels.shape == (3 * size, 3 * size, 3)
    fifth = pixels[size : 2 * size, size : 2 * size, 0]  # row 1, column 1
    np.testing.assert_allclose(
        fifth / 255, examples[4].image[..., 0], atol=0.5 / 255 + 1e-6
    )
    np.testing.assert_array_equal(pixels[2 * size :, size:], 0)

    config = text_format.Parse(
        files["projector_config.pbtxt"], projector.ProjectorConfig()
    )
    (entry,) = config.embeddings
    assert {
        entry.tensor_path,
        entry.metadata_path,
        entry.sprite.image_path,
    } == set(files) - {"projector_config.pbtxt"}
    assert list(entry.sprite.single_image_dim) == [size, size]


def test_too_large_a_sprite_is_refused():
    images = [np.broadcast_to(0.0, (4097, 5, 3))] * 2
    with pytest.raises(UserError, match="at most 1 images of 4097x5"):
        embedding.sprite(images)
