from unittest.mock import Mock

import keras
import numpy as np
import pytest

from common.errors import UserError
from input_data import keys, stored
from input_data.images import labeled_images, make_pipeline
from input_data.kept_features import KeptFeatures
from input_data.stored import kept_rows
from testing.splits import batches, resolved
from testing.tiny_files import random_images

IMAGES = random_images(70, 4, 5)  # more than are computed together


class Negative:
    """A network whose features are the negatives of images."""

    def __init__(self, weight=0):
        self.weight, self.batches = weight, []

    def predict_on_batch(self, images):
        self.batches.append(images)
        return -images

    def get_weights(self):
        return [np.array([self.weight])]


def pipeline_of(images=IMAGES, **settings):
    data = labeled_images("", images, np.arange(70), 70)
    return make_pipeline(data, resolved("arrays", **settings))


def kept(folder, seed=3, network=None, views=2, **settings):
    options = network or Negative(), "negative", seed, views, folder
    return KeptFeatures(pipeline_of(**settings), *options)


def kept_batches(folder, start, stop, seed=3, **settings):
    """Batches of images, and of negatives of images as features."""
    both = pipeline_of(**settings), kept(folder, seed, **settings)
    return (batches(pipeline, 50, start, stop, seed=3) for pipeline in both)


def test_without_changes_batches_are_those_of_the_pipeline(tmp_path):
    both = kept_batches(tmp_path, 0, 3)
    for (x, y), (kept_x, kept_y) in zip(*both, strict=True):
        x[keys.FEATURES] = -x.pop(keys.IMAGES)
        np.testing.assert_equal(kept_x, x)
        np.testing.assert_array_equal(kept_y[keys.LABELS], y[keys.LABELS])


def test_steps_draw_among_the_views(tmp_path):
    _, drawn = kept_batches(tmp_path, 0, 6, flip=True)
    seen = set()
    for x, _ in drawn:
        labels, features = x[keys.RECONS_LABEL], x[keys.FEATURES]
        pixels = np.rint(-255 * features[..., 0]).astype("uint8")
        for label, view in zip(labels, pixels, strict=True):
            mirrored = (view != IMAGES[label]).any()
            seen.add((label, mirrored))
            image = view[:, ::-1] if mirrored else view
            np.testing.assert_array_equal(image, IMAGES[label])
    assert len(seen) > 90  # of 70 images, half of them have two views
    # They depend on the seed and the step alone.
    _, again = kept_batches(tmp_path, 4, 6, flip=True)
    np.testing.assert_equal(again, drawn[4:])
    _, other = kept_batches(tmp_path, 4, 6, flip=True, seed=4)
    assert (other[0][0][keys.FEATURES] != again[0][0][keys.FEATURES]).any()


def test_damage_during_the_use_is_an_error(tmp_path):
    pipeline = kept(tmp_path)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UserError, match=path.name), pipeline.user_errors():
        list(pipeline.training_batches(50, 3, 0, 1))
    with pytest.raises(UserError, match=path.name):
        kept(tmp_path)


def test_features_are_computed_once(tmp_path):
    for count in 4, 0:
        network = Negative()
        kept(tmp_path, network=network)
        assert len(network.batches) - 1 == count  # one tells the shape


def test_other_features_have_another_file(tmp_path, monkeypatch):
    changes = [{}, {"seed": 4}, {"views": 3}, {"images": IMAGES[::-1]}]
    changes += [{"network": Negative(1)}, {"flip": True}, {"shift": 1}]
    for count, changed in enumerate([*changes, {"crop_area": 0.5}], 1):
        kept(tmp_path, **changed)
        assert len(list(tmp_path.iterdir())) == count
    policy = keras.DTypePolicy("float16")
    monkeypatch.setattr(keras.config, "dtype_policy", lambda: policy)
    kept(tmp_path)
    assert len(list(tmp_path.iterdir())) == count + 1


def test_a_full_disk_is_an_error(tmp_path, monkeypatch):
    full = Mock(side_effect=OSError(28, "No space left on device"))
    monkeypatch.setattr(stored.np, "ascontiguousarray", full)
    with pytest.raises(UserError, match="No space"):
        kept_rows(tmp_path / "rows", (1, 2), "uint8", [[[1, 2]]])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "uint8"])
def test_rows_are_those_written(tmp_path, dtype):
    dtype = keras.ops.convert_to_numpy(keras.ops.zeros(1, dtype)).dtype
    values = np.arange(54).reshape(9, 2, 3).astype(dtype)
    path, blocks = tmp_path / "rows", [values[:4], values[4:]]
    for written in blocks, []:
        rows = kept_rows(path, values.shape, dtype, written)
        found = np.asarray(rows[np.array([6, 4, 4])])
        np.testing.assert_array_equal(found, values[[6, 4, 4]])
        assert found.dtype == dtype
