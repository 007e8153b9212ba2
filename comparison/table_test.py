import io
import json
import pathlib

import numpy as np
import pytest
from matplotlib import image

from comparison import table


def a_run(wrong, seconds, weights=1000):
    return {
        "network": {
            "weights": weights + 500,
            "weights_without_decoder": weights,
            "multiply_adds": 10**6,
        },
        "training_seconds": seconds,
        "training_images_per_second": 250.0 * seconds,
        "inference_images_per_second": 900.0,
        "peak_megabytes": None if wrong == 4 else 10.0 * wrong,
        "examples": 200,
        "wrong": wrong,
        "points": [
            {"step": 5, "wrong": wrong + 9, "seconds": seconds / 2},
            {"step": 10, "wrong": wrong, "seconds": seconds},
        ],
    }


MODELS = {
    "baseline": {"runs": {"0": a_run(2, 60.0), "1": a_run(4, 120.0)}},
    "capsule": {"runs": {"0": a_run(0, 90.0, 10**6)}},
}


def test_rows_are_means_and_medians_over_the_seeds():
    first, second = table.rows(MODELS)
    assert first["model"] == "baseline"
    assert first["weights"] == 1500
    assert first["without decoder"] == 1000
    assert first["steps"] == 10
    assert first["training minutes"] == 1.5
    assert first["training images/s"] == 22500.0
    assert first["peak MB"] == 20.0
    np.testing.assert_allclose(first["error %"], 1.5)  # 1 and 2
    np.testing.assert_allclose(first["+-"], np.sqrt(0.5))
    assert first["seeds"] == 2
    assert second["+-"] is None
    assert second["error %"] == 0


def test_the_table_is_markdown_of_one_width():
    lines = table.as_markdown(table.rows(MODELS)).split("\n")
    assert len(lines) == 4
    assert len({len(line) for line in lines}) == 1
    assert set(lines[1]) <= set("|-: ")
    assert "1,000,000" in lines[3]
    assert " 0.71 |" in lines[2]
    assert " - |" in lines[3]


def test_pictures_show_every_model():
    found = table.pictures(MODELS, "digits, 10 steps each")
    assert sorted(found) == ["error_by_time.png", "error_by_weights.png"]
    for content in found.values():
        pixels = image.imread(io.BytesIO(content))
        # White, and the colours of two models.
        assert len(np.unique(pixels[..., :3].reshape(-1, 3), axis=0)) > 3


@pytest.mark.parametrize("name", ["digits", "mnist"])
def test_the_page_shows_what_its_file_holds(name):
    docs = pathlib.Path(__file__).parents[1] / "docs"
    content = json.loads((docs / "comparison" / f"{name}.json").read_text())
    shown = table.as_markdown(table.rows(content["models"])).rstrip()
    assert shown in (docs / "comparison.md").read_text()
