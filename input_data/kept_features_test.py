import numpy as np
import pytest

from common.errors import UserError
from config import Config
from input_data import features as keys
from input_data import kept_features
from input_data.images import labeled_images, make_pipeline
from testing.tiny_files import random_images

IMAGES = random_images(70, 4, 5)  # more than are computed together


def kept_batches(start, stop, seed=3, **settings):
    """Batches of images, and of negatives of images as features."""
    data = labeled_images("", IMAGES, np.arange(70), 70)
    pipeline = make_pipeline(data, Config(dataset="arrays", **settings))
    kept = kept_features.KeptFeatures(pipeline, lambda x: -x, seed, 4)
    return (
        list(p.training_batches(50, 3, start, stop).as_numpy_iterator())
        for p in (pipeline, kept)
    )


def test_without_changes_batches_are_those_of_the_pipeline():
    for (x, y), (kept_x, kept_y) in zip(*kept_batches(0, 3), strict=True):
        x[keys.FEATURES] = -x.pop(keys.IMAGES)
        np.testing.assert_equal(kept_x, x)
        np.testing.assert_array_equal(kept_y[keys.LOGITS], y[keys.LOGITS])


def test_steps_draw_among_the_views():
    _, kept = kept_batches(0, 6, flip=True)
    drawn = [0, 0]
    for x, _ in kept:
        labels, features = x[keys.RECONS_LABEL], x[keys.FEATURES]
        pixels = np.rint(-255 * features[..., 0]).astype("uint8")
        for label, view in zip(labels, pixels, strict=True):
            mirrored = int((view != IMAGES[label]).any())
            drawn[mirrored] += 1
            np.testing.assert_array_equal(
                view[:, ::-1] if mirrored else view, IMAGES[label]
            )
    assert min(drawn) > 100
    # They depend on the seed and the step alone.
    _, again = kept_batches(4, 6, flip=True)
    np.testing.assert_equal(again, kept[4:])
    _, other = kept_batches(4, 6, flip=True, seed=4)
    assert (other[0][0][keys.FEATURES] != again[0][0][keys.FEATURES]).any()


def test_a_full_disk_is_an_error(monkeypatch):
    def fail(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(kept_features.os, "posix_fallocate", fail)
    with pytest.raises(UserError, match="TMPDIR.*GB of features.*No space"):
        kept_batches(0, 1)
