import itertools

import numpy as np
import pytest

from common.errors import UserError
from input_data import keys
from input_data.datasets import tfds_images
from input_data.registry import Split
from testing import splits, tiny_files

# Instance, elevation, azimuth and lighting: each viewpoint once.
VIEWPOINTS = itertools.product(range(9), range(0, 36, 2))
META = np.array([[0, *viewpoint, 0] for viewpoint in VIEWPOINTS])
LABELS = np.arange(len(META)) % 5
# In tens of degrees; elevations in steps of five degrees.
FAMILIAR = {
    "azimuth": np.isin(META[:, 2], [30, 32, 34, 0, 2, 4]),
    "elevation": META[:, 1] < 3,
}
IMAGES = tiny_files.random_images(len(META), 2, 96, 96)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("norb")
    records = list(map(tiny_files.norb_example, IMAGES, LABELS.tolist(), META))
    for name in ("trainduo", "testduo"):
        tiny_files.write_records(folder / f"{name}.tfrecords", records)
    return folder


@pytest.mark.parametrize("source", ["records", "tfds"])
@pytest.mark.parametrize("angle", ["azimuth", "elevation"])
def test_viewpoints(angle, source, folder, monkeypatch):
    familiar = FAMILIAR[angle]
    assert familiar.sum() == len(META) // 3
    monkeypatch.setattr(
        tfds_images, "read_smallnorb", lambda _: (IMAGES, LABELS, META)
    )
    data_dir = folder if source == "records" else None

    def load(viewpoints, split):
        settings = {"viewpoints": viewpoints}
        pipeline = splits.load("norb", split, data_dir, **settings)
        ((x, y),) = pipeline.evaluation_batches(len(META))
        return x[keys.IMAGES], y[keys.LABELS].argmax(axis=-1)

    everything, _ = load(None, Split.TEST)
    for viewpoints, split, chosen in (
        (angle, Split.TRAIN, familiar),
        (f"{angle}-familiar", Split.TRAIN, familiar),
        (angle, Split.TEST, ~familiar),
        (f"{angle}-familiar", Split.TEST, familiar),
    ):
        found, labels = load(viewpoints, split)
        np.testing.assert_array_equal(found, everything[chosen])
        np.testing.assert_array_equal(labels, LABELS[chosen])
    held_out, _ = load(angle, Split.VALID_TEST)
    np.testing.assert_array_equal(held_out, everything[familiar][-10:])


def test_files_without_the_viewpoints(tmp_path):
    path = tmp_path / "testduo.tfrecords"
    records = map(tiny_files.norb_example, IMAGES[:3], LABELS[:3].tolist())
    tiny_files.write_records(path, records)  # all of azimuth 340
    with pytest.raises(UserError, match="testduo.*--viewpoints=azimuth"):
        splits.load("norb", Split.TEST, tmp_path, viewpoints="azimuth")
