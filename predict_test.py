"""The command line, as a process, on images of every kind."""

import dataclasses
import json
import pathlib
import subprocess
import sys
import types

import keras
import numpy as np
import pytest
import tensorflow as tf

import predict
from checkpoints.architecture import Architecture
from input_data import features as keys
from input_data.features import ImageShape
from input_data.transforms.fitting_test import blob, shrink
from models.capsule import HParams
from common.errors import UserError
from testing import untrained

ROOT = pathlib.Path(__file__).parent
ARCHITECTURE = Architecture(
    "capsule",
    ImageShape(16, 16, 1, 3),
    1,
    HParams(conv_channels=4, num_prime_capsules=2, padding="SAME"),
)


def start(*arguments):
    return subprocess.Popen(
        [sys.executable, str(ROOT / "predict.py"), *map(str, arguments)],
        env={"PATH": "/usr/bin:/bin", "TF_CPP_MIN_LOG_LEVEL": "3"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def finish(process, content=None):
    """Exit code, output, and the lines of the command itself in errors."""
    output, errors = process.communicate(content, timeout=120)
    lines = [
        line
        for line in errors.decode().splitlines()
        if line.startswith(("predict.py", "Exported", "Traceback"))
    ]
    return process.returncode, output.decode(), lines


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """A checkpoint in whose network class 1 is long, and its model."""
    model = untrained.compiled(ARCHITECTURE, seed=4)
    biases = np.full((3, 16), 0.1, "float32")
    biases[1] = 1.0
    model.capsule2.biases.assign(biases)
    folder = tmp_path_factory.mktemp("network")
    return untrained.save(folder, model, ARCHITECTURE), model


def lengths(model, image):
    """Capsule lengths of an image float [16, 16] of 0 to 255."""
    images = (image / 255).astype("float32")[np.newaxis, ..., np.newaxis]
    capsules = model({keys.IMAGES: images})[keys.CAPSULES]
    return np.linalg.norm(keras.ops.convert_to_numpy(capsules)[0], axis=-1)


def test_files_of_every_kind(tmp_path, network):
    path, model = network
    image = blob(16, 16)
    oblong = blob(64, 48)
    png = tf.io.encode_png(image).numpy()
    jpeg = tf.io.encode_jpeg(image, quality=60).numpy()
    for name, content in {
        "a.png": png,
        "b.jpg": jpeg,
        "c.png": tf.io.encode_png(oblong).numpy(),
        "d.txt": b"not an image",
    }.items():
        (tmp_path / "folder" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "folder" / name).write_bytes(content)
    (tmp_path / "empty").mkdir()
    missing = tmp_path / "missing.png"

    every = start(
        tmp_path / "folder",
        tmp_path / "empty",
        missing,
        "-",
        f"--checkpoint={path}",
        "--format=json",
        "--num_targets=2",
    )
    nothing = start("--checkpoint=nothing/model.ckpt-1", "a.png")

    code, output, errors = finish(every, png)
    assert code == 1
    folder = f"{tmp_path}/folder"
    assert [line.partition(" it is of another")[0] for line in errors] == [
        f"predict.py: {tmp_path}/empty is a folder without files",
        f"predict.py: {folder}/d.txt is not a sound PNG, JPEG, BMP, GIF or "
        "WebP image:",
        f"predict.py: {missing} cannot be read: No such file or directory",
    ]
    found = {d["file"]: d for d in map(json.loads, output.splitlines())}
    square = np.zeros((64, 64))
    square[:, 8:56] = oblong[..., 0]
    by_png = lengths(model, image[..., 0])
    expected = {
        f"{folder}/a.png": (by_png, 1e-6),
        f"{folder}/b.jpg": (
            lengths(
                model,
                tf.io.decode_jpeg(jpeg, dct_method="INTEGER_ACCURATE").numpy()[
                    ..., 0
                ],
            ),
            1e-6,
        ),
        # Pixels there are rounded to whole numbers.
        f"{folder}/c.png": (lengths(model, shrink(square, 4)), 1e-3),
        "-": (by_png, 1e-6),
    }
    assert list(found) == list(expected)
    for name, (values, tolerance) in expected.items():
        shown = list(found[name]["lengths"].values())
        np.testing.assert_allclose(shown, values, atol=tolerance)
        first, second = found[name]["predictions"]
        assert first["class"] == "1"
        assert first["present"]
        assert int(second["class"]) == np.argsort(values)[1]
        assert first["length"] == shown[1] > 0.5 > second["length"]

    code, output, (error,) = finish(nothing)
    assert (code, output) == (1, "")
    assert error.startswith(
        "predict.py: there is no checkpoint nothing/model.ckpt-1; found none"
    )


def settings(**values):
    defaults = dict.fromkeys(
        ("checkpoint", "class_names", "dataset", "export", "num_targets")
    )
    return types.SimpleNamespace(
        **{**defaults, "format": "table", "invert": False, **values}
    )


def test_inverted_image_table_and_export(tmp_path, capsys, network):
    path, model = network
    image = blob(16, 16)
    file = str(tmp_path / "inverted.png")
    pathlib.Path(file).write_bytes(tf.io.encode_png(255 - image).numpy())
    asked = settings(
        checkpoint=path,
        class_names=["x", "y", "z"],
        invert=True,
        export=str(tmp_path / "net.keras"),
    )
    assert predict.run(asked, [file]) == 0
    expected = lengths(model, image[..., 0])
    header, row = capsys.readouterr().out.splitlines()
    assert header.split() == ["file", "class", "length", "x", "y", "z"]
    shown = [f"{value:.3f}" for value in expected]
    assert row.split() == [file, "y", shown[1], *shown]
    exported = keras.models.load_model(tmp_path / "net.keras")
    np.testing.assert_allclose(
        exported(image[np.newaxis] / np.float32(255))["logits"][0],
        expected,
        atol=1e-6,
    )


def test_files_are_padded_as_the_training_was(tmp_path, capsys, network):
    _, model = network
    path = untrained.save(tmp_path, model, ARCHITECTURE, pad=2)
    image = blob(12, 12)
    file = tmp_path / "a.png"
    file.write_bytes(tf.io.encode_png(image).numpy())
    expected = lengths(model, np.pad(image[..., 0], 2))
    for num_targets in (None, 2):
        asked = settings(checkpoint=path, num_targets=num_targets)
        assert predict.run(asked, [str(file)]) == 0
        _, row, *_ = capsys.readouterr().out.splitlines()
        shown = " ".join(f"{value:.3f}" for value in expected)
        assert f" {shown}" in " ".join(row.split())


def test_a_wrong_flag_exports_nothing(tmp_path, network):
    path, _ = network
    export = str(tmp_path / "net.keras")
    asked = settings(checkpoint=path, export=export, class_names=["x"])
    with pytest.raises(UserError, match="class_names"):
        predict.run(asked, ["a.png"])
    assert list(tmp_path.iterdir()) == []


def test_a_network_of_two_views_says_so(tmp_path, capsys):
    shape = ImageShape(8, 8, 2, 3)
    architecture = dataclasses.replace(ARCHITECTURE, shape=shape)
    network = untrained.compiled(architecture)
    path = untrained.save(tmp_path, network, architecture, dataset="norb")
    file = tmp_path / "a.png"
    file.write_bytes(tf.io.encode_png(blob(12, 12)).numpy())
    assert predict.run(settings(checkpoint=path), [str(file)]) == 0
    output, errors = capsys.readouterr()
    assert output.splitlines()[1].startswith(str(file))
    assert "takes 2 views of an object; each image serves as all" in errors


def test_nothing_to_do(tmp_path, capsys, network):
    path, _ = network
    with pytest.raises(UserError, match="--checkpoint is required"):
        predict.run(settings(), ["x.png"])
    with pytest.raises(UserError, match="nothing to do: name images"):
        predict.run(settings(checkpoint=path), [])
    assert predict.run(settings(checkpoint=path), [str(tmp_path)]) == 1
    assert capsys.readouterr() == (
        "",
        f"predict.py: {tmp_path} is a folder without files\n",
    )
