import dataclasses
import io
import json
import sys

import numpy as np
import pytest
from PIL import Image

from checkpoints import Checkpoint, Metadata
from checkpoints.architecture import Architecture
from evaluation import prediction
from evaluation.prediction import (
    JsonLines,
    Prediction,
    Table,
    class_names_of,
    list_files,
    load_network,
    predict_files,
    trained_on,
)
from input_data.dataset import DataSet
from input_data.features import ImageShape
from input_data.formats import files, image_file
from models.capsule import HParams
from old.errors import UserError
from testing.tf1_examples import write

ABSENT = Prediction("b.png", np.array([0.5, 0.12345678, 0.2], "float32"), 1)
PRESENT = Prediction("a.png", np.array([0.1, 0.2, 0.9], "float32"), 1)
NAMES = ["zero", "one", "two"]
READ_IMAGE = image_file.read


@pytest.fixture(autouse=True)
def files_of_numbers(monkeypatch):
    """Files are no images here, but numbers that `prepare` reads."""
    monkeypatch.setattr(image_file, "read", files.read_bytes)


class Mean:
    """A network that says what the mean of each image is, and remembers."""

    def __init__(self):
        self.batches = []

    def predict_on_batch(self, images):
        self.batches.append(len(images))
        mean = images.mean(axis=(1, 2, 3))
        return {"logits": np.stack([mean, 1 - mean], axis=-1)}


def prepare(content, name):
    if not content.isdigit():
        raise UserError(f"{name} is bad")
    return np.full((2, 2, 1), int(content) / 1000, "float32")


def write_files(folder, contents):
    for name, content in contents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(content))


def test_files_of_folders_in_order_without_hidden_ones(tmp_path):
    names = ["b.png", "a.png", "deep/er/c.png", ".hidden", ".folder/d.png"]
    write_files(tmp_path / "some", dict.fromkeys(names, 1))
    (tmp_path / "empty").mkdir()
    link = tmp_path / "some" / "deep" / "link"
    link.symlink_to(tmp_path)
    errors = []
    arguments = [str(tmp_path / n) for n in ("some", "no.png", "empty")]
    files = list_files([*arguments, "-"], errors.append)
    some = f"{tmp_path}/some/"
    assert files == [
        f"{some}a.png",
        f"{some}b.png",
        f"{some}deep/er/c.png",
        f"{tmp_path}/no.png",
        "-",
    ]
    assert [str(e) for e in errors] == [
        f"{link} is a link to a folder: name it itself",
        f"{tmp_path}/empty is a folder without files",
    ]


def test_many_files_in_batches_the_bad_ones_named(tmp_path, capsys):
    write_files(tmp_path, {f"{n:03d}": n for n in range(250)})
    write_files(tmp_path, {"007": "x", "130": "x"})
    files = [*list_files([str(tmp_path)], None), str(tmp_path / "none")]
    network, errors = Mean(), []
    found = list(predict_files(files, network, prepare, 1, errors.append))
    good = [n for n in range(250) if n not in (7, 130)]
    assert [p.name for p in found] == [f"{tmp_path}/{n:03d}" for n in good]
    np.testing.assert_allclose(
        [p.values[0] for p in found], np.array(good) / 1000, atol=1e-6
    )
    assert network.batches == [99, 99, 50]
    assert [str(e) for e in errors] == [
        f"{tmp_path}/007 is bad",
        f"{tmp_path}/130 is bad",
        f"{tmp_path}/none cannot be read: No such file or directory",
    ]
    output, progress = capsys.readouterr()
    assert output == ""
    assert "image 251/251" in progress


def test_names_cannot_write_to_the_terminal(capsys):
    table = Table(["a\nb\x1b[2J"], ["é", "one", "\x1b[31mred"], 1, True)
    table.print(dataclasses.replace(PRESENT, name="a\nb\x1b[2J"))
    header, row = capsys.readouterr().out.splitlines()
    assert "\x1b" not in header + row
    assert "é" in header
    assert row.startswith(r"a\nb\x1b[2J  \x1b[31mred")


def test_no_more_than_a_batch_is_read_ahead(tmp_path):
    write_files(tmp_path, {f"{n:03d}": n for n in range(250)})
    read = []

    def note(content, name):
        read.append(name)
        return prepare(content, name)

    files = list_files([str(tmp_path)], None)
    predictions = predict_files(files, Mean(), note, 1, None)
    next(predictions)
    assert len(read) == prediction.EVAL_BATCH_SIZE
    predictions.close()


def test_standard_input(monkeypatch, capsys):
    stdin = io.TextIOWrapper(io.BytesIO(b"300"))
    monkeypatch.setattr(sys, "stdin", stdin)
    (found,) = predict_files(["-"], Mean(), prepare, 1, None)
    assert found.name == "-"
    np.testing.assert_allclose(found.values, [0.3, 0.7], atol=1e-6)
    assert capsys.readouterr().err == ""  # too few for a progress bar
    errors = []  # all of it was read
    assert not list(predict_files(["-"], Mean(), prepare, 1, errors.append))
    assert [str(e) for e in errors] == ["standard input is bad"]


def test_numbers_that_are_not_finite(tmp_path):
    write_files(tmp_path, {"a": 1})

    class Broken:
        def predict_on_batch(self, images):
            return {"logits": np.array([[np.nan, 0.0]])}

    files = [str(tmp_path / "a")]
    with pytest.raises(UserError, match="not finite"):
        list(predict_files(files, Broken(), prepare, 1, None))


def test_the_largest_values_of_equals_the_lower_class():
    values = np.array([0.2, 0.6, 0.1, 0.6, 0.7])
    assert Prediction("x", values, 1).classes == [4]
    assert Prediction("x", values, 2).classes == [4, 1]
    assert Prediction("x", values, 2).num_present == 2
    assert ABSENT.num_present == 0  # 0.5 is not longer than 0.5


def test_table(capsys):
    table = Table(["a.png", "b.png", "unread.png"], NAMES, 1, True)
    table.print(PRESENT)
    table.print(ABSENT)
    assert capsys.readouterr().out.splitlines() == [
        "file        class   length     zero      one      two",
        "a.png       two      0.900    0.100    0.200    0.900",
        "b.png       zero     0.500    0.500    0.123    0.200  "
        "no capsule is longer than 0.5",
    ]


def test_table_of_two_targets(capsys):
    table = Table(["c"], NAMES, 2, True)
    table.print(Prediction("c", PRESENT.values, 2))
    assert capsys.readouterr().out.splitlines() == [
        "file  class   length  class   length     zero      one      two",
        "c     two      0.900  one      0.200    0.100    0.200    0.900  "
        "only one capsule is longer than 0.5",
    ]


def test_table_of_logits(capsys):
    table = Table(["c"], ["0", "1"], 1, False)
    table.print(Prediction("c", np.array([-12.5, 0.25]), 1))
    assert capsys.readouterr().out.splitlines() == [
        "file  class    logit        0        1",
        "c     1        0.250  -12.500    0.250",
    ]


def test_json(capsys):
    printer = JsonLines(NAMES, has_capsules=True)
    printer.print(ABSENT)
    printer.print(Prediction("c", PRESENT.values, 2))
    absent, two = map(json.loads, capsys.readouterr().out.splitlines())
    assert absent == {
        "file": "b.png",
        "predictions": [{"class": "zero", "length": 0.5, "present": False}],
        "lengths": {"zero": 0.5, "one": 0.1234568, "two": 0.2},
    }
    assert two["predictions"] == [
        {"class": "two", "length": 0.9, "present": True},
        {"class": "one", "length": 0.2, "present": False},
    ]


def test_json_of_logits(capsys):
    JsonLines(["0", "1"], False).print(Prediction("c", np.array([-2, 3.5]), 1))
    assert json.loads(capsys.readouterr().out) == {
        "file": "c",
        "predictions": [{"class": "1", "logit": 3.5}],
        "logits": {"0": -2.0, "1": 3.5},
    }


def test_class_names():
    architecture = Architecture(
        "capsule", ImageShape(28, 28, 1, 3), 1, HParams()
    )
    numbers = Metadata(1, architecture, {})
    named = Metadata(1, architecture, {}, ["p", "q", "r"])
    assert class_names_of(numbers, None) == ["0", "1", "2"]
    assert class_names_of(named, None) == ["p", "q", "r"]
    for metadata in (numbers, named):
        assert class_names_of(metadata, NAMES) == NAMES
        with pytest.raises(UserError, match="has 2 names.* has 3 classes"):
            class_names_of(metadata, NAMES[:2])
        with pytest.raises(UserError, match="a name twice"):
            class_names_of(metadata, ["a", "b", "a"])


def test_the_data_set_of_the_training():
    architecture = Architecture(
        "capsule", ImageShape(28, 28, 1, 10), 1, HParams()
    )
    known, converted = (
        Checkpoint(1, architecture, {"dataset": name}, path="x")
        for name in ("norb", None)
    )
    assert trained_on(known, None) == "norb"
    assert trained_on(known, "norb") == "norb"
    assert trained_on(converted, "mnist") == "mnist"
    with pytest.raises(UserError, match="trained on norb: leave --dataset out"):
        trained_on(known, "mnist")
    with pytest.raises(UserError, match="x does not tell.*by --dataset"):
        trained_on(converted, None)


def test_tf1_checkpoints_are_to_be_converted(tmp_path):
    path = write(tmp_path / "model.ckpt-1", {"global_step": np.float32(1)})
    with pytest.raises(UserError, match="python -m training.tf1_checkpoint"):
        load_network(path)


def test_what_never_ends_is_not_read_to_its_end(tmp_path, monkeypatch):
    class Endless(io.RawIOBase):
        def readable(self):
            return True

        def readinto(self, buffer):
            buffer[:] = b"y" * len(buffer)
            return len(buffer)

    monkeypatch.setattr(image_file, "MAX_BYTES", 5000)
    monkeypatch.setattr(image_file, "_OTHER_BYTES", 5000)
    monkeypatch.setattr(image_file, "read", READ_IMAGE)
    stdin = io.TextIOWrapper(io.BufferedReader(Endless()))
    monkeypatch.setattr(sys, "stdin", stdin)
    Image.new("L", (10, 10)).save(tmp_path / "large", "PNG")
    with open(tmp_path / "large", "ab") as file:
        file.truncate(10**10)  # which no image of 10x10 has
    lengths, errors = [], []

    def note(content, name):
        lengths.append(len(content))
        raise UserError(f"{name} is bad")

    files = ["-", str(tmp_path / "large")]
    assert not list(predict_files(files, Mean(), note, 1, errors.append))
    assert lengths == [5001]
    assert "large is too large: it has over 5,800" in str(errors[1])


def prepared(image, looks, shape, num_targets=1):
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG")
    prepare = prediction.preparation(
        looks, shape, DataSet(load=None), num_targets
    )
    return prepare(buffer.getvalue(), "a.png", invert=False)[..., 0]


def test_files_are_padded_and_cropped_as_the_images_of_the_training():
    image = np.random.default_rng(0).integers(0, 256, (28, 28), np.uint8)
    pixels = image.astype("float32") / 255
    large = ImageShape(40, 40, 1, 10)
    padded = np.pad(pixels, 6)
    for looks in ({"pad": 6}, {"pad": 6, "image_size": 28}):
        np.testing.assert_array_equal(prepared(image, looks, large), padded)
    # A file of two objects has their padding already.
    whole = prepared(image, {"pad": 6}, large, num_targets=2)
    assert whole[:6].max() > 0
    cropped = prepared(
        image, {"distort": True, "pad": None}, ImageShape(24, 24, 1, 10)
    )
    np.testing.assert_array_equal(cropped, pixels[2:26, 2:26])
    for pad in (20, -1):
        with pytest.raises(
            UserError, match=f"cannot have been padded by {pad}"
        ):
            prepared(image, {"pad": pad}, large)
