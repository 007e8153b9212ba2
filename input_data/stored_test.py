"""Images on disk give the batches of images in memory."""

import dataclasses

import numpy as np
import pytest

from config import Config
from input_data import registry, stored
from input_data.stored import StoredRows
from testing import tiny_files


def batches_of(pipeline, train):
    if not train:
        return list(pipeline.evaluation_batches(4))
    return list(pipeline.training_batches(6, 3, 0, 7).as_numpy_iterator())


def everything(config):
    """Batches, specs and figures of the splits and kinds of a data set."""
    found = []
    for validate, num_targets in ((False, 1), (True, 2)):
        changed = {"validate": validate, "num_targets": num_targets}
        one = dataclasses.replace(config, **changed)
        for train in (True, False):
            pipeline = registry.load(one, train)
            found += [pipeline.spec, batches_of(pipeline, train)]
        found.append(pipeline.evaluation_images([0, 2]))
    pairs = dataclasses.replace(config, num_targets=2, pairs="below")
    found += registry.load(pairs, train=False).evaluation_batches(4)
    return found


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("arrays", {}),
        ("images", {"color": True, "image_size": 18}),
    ],
)
def test_both_sources_give_the_same_bytes(
    name, settings, tmp_path, monkeypatch
):
    tiny_files.WRITERS[name](tmp_path)
    config = Config(dataset=name, data_dir=str(tmp_path), **settings)
    in_memory = everything(config)
    monkeypatch.setattr(stored, "MEMORY_BYTES", 0)
    reads = []
    read = StoredRows.__array__
    monkeypatch.setattr(
        StoredRows,
        "__array__",
        lambda rows, *a, **k: reads.append(len(rows)) or read(rows, *a, **k),
    )
    np.testing.assert_equal(everything(config), in_memory)
    assert len(reads) > 9
