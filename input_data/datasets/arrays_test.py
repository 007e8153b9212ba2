import gzip

import numpy as np
import pytest

from common.errors import UserError
from input_data import keys, stored
from input_data.datasets import arrays
from input_data.registry import Split
from testing import splits, tiny_files
from training.scores import Predictions

IMAGES = tiny_files.random_images(6, 12, 14)
LABELS = np.array([0, 0, 1, 1, 3, 3])


def write(folder, **changed):
    content = {"x_train": IMAGES, "y_train": LABELS}
    content |= {"x_test": IMAGES[:3], "y_test": LABELS[1:4], **changed}
    for name, array in content.items():
        if array is not None:
            np.save(folder / name, array)
    return folder


def load(folder, split, **settings):
    return splits.load("arrays", split, folder, **settings)


@pytest.mark.parametrize("images", [IMAGES, IMAGES[..., None].repeat(3, -1)])
@pytest.mark.parametrize(
    "labels", [LABELS, LABELS[:, None].astype("u1"), LABELS.astype(float)]
)
def test_values_and_number_of_classes(tmp_path, images, labels):
    write(tmp_path, x_train=np.asfortranarray(images), y_train=labels)
    data = arrays.read_arrays(tmp_path, training=True)
    np.testing.assert_array_equal(data.images, images.reshape(6, 12, 14, -1))
    np.testing.assert_array_equal(data.labels, LABELS)
    assert data.num_classes == 4
    # The largest label is among the training's.
    assert arrays.read_arrays(tmp_path, training=False).num_classes == 4


@pytest.mark.parametrize(("text", "count"), [(None, 2), ("a\nb\nc \n\n", 3)])
def test_the_test_images_alone_are_enough_to_evaluate(tmp_path, text, count):
    write(tmp_path, x_train=None, y_train=None)
    if text:
        (tmp_path / "class_names.txt").write_text(text)
    pipeline = load(tmp_path, Split.TEST)
    assert pipeline.spec.shape == keys.ImageShape(12, 14, 1, count)
    assert pipeline.spec.class_names == (("a", "b", "c") if text else None)
    ((x, _),) = pipeline.evaluation_batches(9)
    np.testing.assert_allclose(x[keys.IMAGES][..., 0], IMAGES[:3] / 255)


@pytest.mark.parametrize("split", [Split.TEST, Split.VALID_TEST])
def test_parts_have_all_classes_and_know_the_rows_of_the_file(tmp_path, split):
    images = tiny_files.random_images(100, 5, 5)
    labels = np.repeat([0, 1], 50)
    parts = {"x_train": images, "y_train": labels}
    write(tmp_path, **parts, x_test=images, y_test=labels)
    pipeline = load(tmp_path, split, eval_size=20)
    ((x, y),) = pipeline.evaluation_batches(100)
    assert y[keys.LABELS].sum(axis=0).min() >= 3
    logits = 1 - y[keys.LABELS]  # all wrong
    found = Predictions(y[keys.LABELS], logits, None, pipeline, "arrays", 1.0)
    expected = images[found.wrong_rows] / 255
    np.testing.assert_allclose(x[keys.IMAGES][..., 0], expected, atol=1e-6)


def test_packed_files_are_read_and_a_flipped_bit_is_found(tmp_path):
    write(tmp_path)
    packed = gzip.compress((tmp_path / "x_test.npy").read_bytes(), mtime=0)
    (tmp_path / "x_test.npy").unlink()
    (tmp_path / "x_test.npy.gz").write_bytes(packed)
    found = arrays.read_arrays(tmp_path, training=False).images[..., 0]
    np.testing.assert_array_equal(found, IMAGES[:3])
    for place in range(20, len(packed)):
        damaged = bytearray(packed)
        damaged[place] ^= 4
        (tmp_path / "x_test.npy.gz").write_bytes(damaged)
        with pytest.raises(UserError, match=r"x_test\.npy\.gz"):
            arrays.read_arrays(tmp_path, training=False)


def test_the_validation_is_the_same_in_all_versions(tmp_path):
    tiny_files.write_arrays(tmp_path)
    pipeline = load(tmp_path, Split.VALID_TEST)
    fingerprints = {"divided_for_validation": "cc6ea75391e3076a"}
    fingerprints["validation_images"] = "7157e0ab73f4817d"
    assert pipeline.spec.split_fingerprints == fingerprints
    ((x, _),) = pipeline.evaluation_batches(100)
    assert x[keys.RECONS_LABEL].tolist() == [1, 0, 1]
    assert not load(tmp_path, Split.TRAIN).spec.split_fingerprints


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        *(("x", IMAGES / 255), ("x", IMAGES[0]), ("x", IMAGES[:0])),
        *(("x", IMAGES[:, None]), ("x", np.array([{}]))),
        *(("x", IMAGES[0, 0, 0]), ("x", IMAGES[:, :0])),
        *(("y", LABELS[:5]), ("y", LABELS - 1), ("y", LABELS + 2**31)),
        *(("y", 2 * np.eye(4)[LABELS]), ("y", np.eye(4)[LABELS, None])),
    ],
    ids=range(12),
)
def test_unsuitable_arrays_are_named(tmp_path, name, changed, monkeypatch):
    write(tmp_path, **{f"{name}_train": changed})
    for memory in stored.MEMORY_BYTES, 0:
        monkeypatch.setattr(stored, "MEMORY_BYTES", memory)
        with pytest.raises(UserError, match="(x|y)_train.npy"):
            load(tmp_path, Split.TRAIN)


def test_unsuitable_names_and_a_validation_of_one_image(tmp_path):
    path = tmp_path / "class_names.txt"
    path.symlink_to("unmounted")
    write(tmp_path)
    for text in None, "a\nb\nc\na\n", "a\nb\nc\n":  # the same twice, too few
        if text:
            path.unlink()
            path.write_text(text)
        with pytest.raises(UserError, match=r"class_names\.txt"):
            load(tmp_path, Split.TRAIN)
    path.unlink()
    write(tmp_path, x_train=IMAGES[:1], y_train=LABELS[:1])
    with pytest.raises(UserError, match="--validate"):
        load(tmp_path, Split.VALID_TRAIN)
