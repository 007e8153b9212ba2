"""Images with any number of classes: the commands."""

import dataclasses
import json

import numpy as np
import pytest
from PIL import Image

import experiment
import figures
import predict
from common.errors import UserError
from config import Config
from testing.commands import run_here
from testing.small_models import overrides

NAMES = ("bar", "corner", "dot")
SMALL = f"{overrides('capsule')},padding=SAME,learning_rate=0.01"


def make_images(count, seed):
    """uint8 [count, 18, 18] with any of three figures, and k-hot labels."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, (count, 3))
    images = rng.integers(0, 40, (count, 18, 18), "uint8")
    for image, (bar, corner, dot) in zip(images, labels, strict=True):
        image[:, 8:10] += np.uint8(200 * bar)
        image[:4, :4] += np.uint8(200 * corner)
        image[13:17, 3:7] += np.uint8(200 * dot)
    return images, labels


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    arrays = tmp_path_factory.mktemp("arrays")
    for part, count, seed in (("train", 60, 0), ("test", 23, 1)):
        images, labels = make_images(count, seed)
        np.save(arrays / f"x_{part}.npy", images)
        np.save(arrays / f"y_{part}.npy", labels)
    (arrays / "class_names.txt").write_text("\n".join(NAMES))
    folders = map(str, (arrays, tmp_path_factory.mktemp("trained")))
    settings = dict(zip(("data_dir", "summary_dir"), folders, strict=True))
    settings |= {"hparams_override": SMALL, "batch_size": 30, "max_steps": 60}
    config = Config(dataset="arrays", **settings)
    experiment.run(config)
    return config


def test_evaluation(trained, tmp_path, capsys):
    data = {"data_dir": trained.data_dir, "checkpoint": trained.summary_dir}
    config = Config(train=False, summary_dir=str(tmp_path), **data)
    assert experiment.run(config).wrong_percent < 10
    assert "\nmicro precision " in capsys.readouterr().out
    experiment.run(dataclasses.replace(config, format="json"))
    document = json.loads(capsys.readouterr().out)
    assert [c["class"] for c in document["classes"]] == list(NAMES)
    f1 = [c["f1"] for c in document["classes"]]
    assert document["macro"]["f1"] == pytest.approx(np.mean(f1))
    assert min(f1) > 0.9
    assert list(tmp_path.glob("test/*.png"))
    with pytest.raises(UserError, match="images of several classes"):
        figures.draw(["routing"], Config(train=False, **data))


def test_predict_names_all_present_classes(trained, tmp_path, capsys):
    images, labels = make_images(12, 2)
    for number, image in enumerate(images):
        Image.fromarray(image).save(tmp_path / f"{number:02}.png")
    checkpoint = f"--checkpoint={trained.summary_dir}"
    assert run_here("predict.py", checkpoint, "--format=json", tmp_path) == 0
    documents = map(json.loads, capsys.readouterr().out.splitlines())
    found = [{p["class"] for p in d["predictions"]} for d in documents]
    expected = [set(np.array(NAMES)[row > 0]) for row in labels]
    assert sum(map(set.__eq__, found, expected)) >= 11

    lengths = np.array([[0.9, 0.1, 0.7], [0.2, 0.8, 0.3], [0.1, 0.2, 0.3]])
    rows = zip("abc", ([0, 2], [1], []), lengths, strict=True)
    predict.print_table(rows, ["a"], NAMES, 0, "length")
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split() == ["file", *NAMES]
    for line, end in zip(lines, ("bar, dot", "  corner", "0.5"), strict=True):
        assert line.endswith(end)


def test_other_losses_are_refused(trained, tmp_path):
    override = f"{SMALL},loss_type=softmax"
    settings = {"hparams_override": override, "summary_dir": str(tmp_path)}
    with pytest.raises(UserError, match="margin loss"):
        experiment.run(dataclasses.replace(trained, **settings))
