import json
import os
import sys

import keras
import numpy as np
import pytest
from PIL import Image, ImageDraw

import layers
import predict
from common.errors import UserError
from config import Config
from input_data import keys
from input_data.preparation import center
from resolve import with_defaults
from testing import untrained
from testing.commands import run, run_here
from training import inference
from training.formats import open_checkpoint
from training.inference import class_names

SHAPE = keys.ImageShape(16, 16, 1, 3)


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """A model whose capsule of class 1 is long, and its checkpoint."""
    model, architecture = untrained.small(shape=SHAPE, padding="SAME", seed=4)
    biases = np.full((3, 5), 0.1, "float32")
    biases[1] = 1.0
    model.network.get_layer("capsule2").biases.assign(biases)
    folder = tmp_path_factory.mktemp("network")
    return model, untrained.save(folder, model, architecture, pad=2)


@pytest.fixture
def images(tmp_path):
    """A folder with two digits, a hidden file and one that is no image."""
    (tmp_path / "b").mkdir()
    for name, seed in (("a.png", 0), ("b/c.png", 1)):
        pixels = np.random.default_rng(seed).integers(0, 256, (12, 12), "u1")
        Image.fromarray(pixels).save(tmp_path / name)
    (tmp_path / ".hidden").write_text("hidden")
    (tmp_path / "b" / "text.png").write_text("not an image")
    Image.new("L", (1, 60)).save(tmp_path / "b" / "thin.png")
    return tmp_path


def test_json_of_standard_input_and_a_folder(network, images, tmp_path):
    model, path = network
    exported = tmp_path / "network.keras"
    files = [images / "a.png", images / "b" / "c.png"]
    flags = "--format=json", "--class_names=x,y,z", f"--export={exported}"
    with open(files[1]) as stdin:
        code, output, errors = run(
            *("predict.py", f"--checkpoint={path}", *flags, "-", images),
            stdin=stdin,
        )
    assert code == 1
    assert [errors.count(n) for n in ("text.png", "thin.png")] == [1, 1]
    documents = [json.loads(line) for line in output.splitlines()]
    assert [d["file"] for d in documents] == ["-", *map(str, files)]
    files.insert(0, files[1])
    for document, file in zip(documents, files, strict=True):
        pixels = np.pad(np.asarray(Image.open(file), "float32") / 255, 2)
        outputs = model({keys.IMAGES: pixels[None, ..., None]})
        lengths = outputs[keys.LOGITS].numpy()[0]
        np.testing.assert_allclose(
            list(document["lengths"].values()), lengths, atol=1e-5
        )
        (best,) = document["predictions"]
        assert best["class"] == "y"
        assert best["present"] == (lengths[1] > 0.5)
    loaded = keras.models.load_model(exported)
    outputs = loaded(np.zeros((1, 16, 16, 1), "float32"))
    assert outputs[keys.CAPSULES].shape == (1, 3, 5)


def test_files_of_folders_that_are_no_images_are_ignored(images, capsys):
    before = predict.list_files([str(images)])
    assert capsys.readouterr().err == ""
    os.symlink(".", images / "again")  # links are followed once
    (images / "__MACOSX").mkdir()
    (images / "b" / "list.csv").touch()
    for name in "README", "a.svg", "__MACOSX/d.png":
        (images / name).touch()
    assert predict.list_files([str(images)]) == before
    ignored = f"predict.py: {images}: ignored 3 files: .csv .svg no suffix\n"
    assert capsys.readouterr().err == ignored
    # Those that are named are read.
    named = [str(images / "README"), str(images / "__MACOSX" / "d.png")]
    assert predict.list_files(named) == named


def test_closed_folders_are_listed(images, monkeypatch):
    def walk(folder, onerror, followlinks):
        onerror(PermissionError(13, "Permission denied", f"{folder}/b"))
        yield folder, ["b"], ["a.png", "gone.png"]

    monkeypatch.setattr(os, "walk", walk)
    found = [str(images / name) for name in ("a.png", "b", "gone.png")]
    assert predict.list_files([str(images)]) == found


def test_photographed_digits_are_centered(tmp_path, capsys):
    drawing = Image.new("L", (280, 280))
    ImageDraw.Draw(drawing).line((140, 40, 160, 240), 255, 21)
    shadow = np.linspace(160, 200, 280)
    paper = shadow - 0.5 * np.roll(drawing, (-30, 90), (0, 1))
    path = tmp_path / "one.png"
    Image.fromarray(paper.astype("u1")).save(path)
    prepare = inference.preparation(
        with_defaults(Config(dataset="mnist")), untrained.DIGITS, 1
    )
    expected = center(np.asarray(drawing), (28, 28)) / 255
    found = prepare(path.read_bytes(), "one", invert=True)
    np.testing.assert_allclose(found, expected, atol=0.2)

    # White on black: after --invert it has bright edges.
    drawing.save(tmp_path / "white.png")
    files = path, tmp_path / "white.png"
    assert run_here("predict.py", "--invert", "--center", *files) == 0
    output, errors = capsys.readouterr()
    assert f"1 images, such as {files[1]}, are not digits" in errors
    assert output.splitlines()[1].split()[:2] == [str(path), "1"]


def printed(capsys, predictions, names):
    files = [file for file, *_ in predictions]
    predict.print_table(predictions, files, names, 1, "length")
    return capsys.readouterr().out.splitlines()


def test_tables_have_a_row_for_each_file(capsys):
    first, second = np.array([[0.1, 0.8, 0.2], [0.4, 0.3, 0.2]])
    rows = [("a.png", [1], first), ("b.png", [0], second)]
    assert printed(capsys, rows, "xyz") == [
        "file   class   length        x        y        z",
        "a.png  y        0.800    0.100    0.800    0.200",
        "b.png  x        0.400    0.400    0.300    0.200  "
        "no capsule is longer than 0.5",
    ]
    files = "\x1b[2Jx.png", "a\nb.png"
    rows = [(file, [0], np.array([0.9, 0.1])) for file in files]
    _, *rows = printed(capsys, rows, ["\x1b[2J", "y"])
    assert [row.split()[:2] for row in rows] == [
        [r"\x1b[2Jx.png", r"\x1b[2J"],
        [r"a\nb.png", r"\x1b[2J"],
    ]
    assert rows[0].index("0.900") == rows[1].index("0.900")


def test_class_names(network):
    opened = open_checkpoint(network[1])
    assert class_names(opened, None) == ["0", "1", "2"]
    for names in (["a", "b"], ["a", "a", "b"]):
        with pytest.raises(UserError, match="--class_names"):
            class_names(opened, names)


def test_an_export_replaces_nothing(network, tmp_path):
    exportable = network[0].functional()
    predict.export(tmp_path / "saved", exportable)
    assert (tmp_path / "saved" / "saved_model.pb").exists()
    with pytest.raises(UserError, match="saved"):
        predict.export(tmp_path / "saved", exportable)


def test_the_pretrained_network_is_the_default(capsys):
    opened = inference.open_or_pretrained(Config())
    network = inference.load_network(opened).functional()
    assert "pretrained" in capsys.readouterr().err
    images = np.random.default_rng(3).uniform(size=(2, 28, 28, 1))
    for name, values in layers.pretrained("mnist")(images).items():
        np.testing.assert_allclose(network(images)[name], values, atol=1e-6)
    assert opened.run_settings["dataset"] == "mnist"


def test_an_export_needs_no_images(tmp_path, capsys):
    # Images of four channels are not in files.
    network = untrained.small(shape=keys.ImageShape(20, 20, 4, 3))
    path, exported = untrained.save(tmp_path, *network), tmp_path / "x.keras"
    flags = f"--checkpoint={path}", f"--export={exported}"
    assert run_here("predict.py", *flags) == 0
    assert (capsys.readouterr().out, exported.exists()) == ("", True)


def test_an_export_as_float16(tmp_path, monkeypatch):
    exportable = layers.pretrained("mnist")
    exportable.set_weights([w / 3 for w in exportable.get_weights()])
    predict.export(tmp_path / "mnist.npz", exportable)
    module = sys.modules["layers.pretrained"]
    monkeypatch.setattr(module, "__file__", str(tmp_path / "file"))
    read = layers.pretrained("mnist")
    rounded = [w.astype("float16") for w in exportable.get_weights()]
    np.testing.assert_equal(read.get_weights(), rounded)
