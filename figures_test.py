"""The command, end to end, on small untrained networks."""

import os

import pytest
import tensorflow as tf

import figures
from checkpoints.tf1 import tf1_checkpoint
from input_data.features import ImageShape
from common.errors import UserError
from testing import commands, small_models, untrained
from testing.events import events_of
from training.config import Config

PAIRS = ImageShape(36, 36, 1, 10)


def save(folder, *shape, **hparams):
    """Saves an untrained network; gives the path of its checkpoint."""
    network = untrained.small("capsule", *shape, **hparams)
    return untrained.save(folder / "train", *network)


def draw(names, path, output_dir, num_examples=1, **config):
    config = Config(train=False, checkpoint=path, eval_size=60, **config)
    return figures.draw(names, config, output_dir, num_examples)


def size_of(path):
    return tf.io.decode_png(path.read_bytes()).shape[:2]


def test_every_figure_of_two_targets_to_files_and_tensorboard(tmp_path):
    path = save(tmp_path, PAIRS, 2)
    out = tmp_path / "new" / "out"
    paths = draw(
        list(figures.FIGURES), path, out, summary_dir=str(tmp_path / "logs")
    )
    assert sorted(paths) == sorted(out.iterdir())
    pictures = {
        path.stem: size_of(path)
        for path in paths
        if path.suffix == ".png" and path.stem != "sprite"
    }
    assert {"reconstructions", "multimnist", "routing"} < set(pictures)

    logs = tmp_path / "logs" / "figures"
    events = events_of(logs)
    assert set(events.Tags()["tensors"]) == set(pictures)
    for tag, (height, width) in pictures.items():
        (event,) = events.Tensors(tag)
        shown_width, shown_height, image = event.tensor_proto.string_val
        assert (int(shown_width), int(shown_height)) == (width, height)
        shown = tf.io.decode_png(image).numpy()
        written = tf.io.decode_png((out / f"{tag}.png").read_bytes(), 3)
        assert (shown == written.numpy()).all()
    config = "projector_config.pbtxt"
    assert (logs / config).read_bytes() == (out / config).read_bytes()


def test_a_tf1_checkpoint_gives_the_same_figures(tmp_path):
    ours = save(tmp_path)
    theirs = tf1_checkpoint.save(tmp_path / "tf1", *untrained.small(), step=0)
    names = ["reconstructions", "embedding"]
    first = draw(names, ours, tmp_path / "ours", dataset="digits")
    second = draw(
        names,
        str(theirs),
        tmp_path / "theirs",
        dataset="digits",
        hparams_override=small_models.overrides("capsule"),
    )
    for one, other in zip(first, second, strict=True):
        assert one.name == other.name
        assert one.read_bytes() == other.read_bytes()


def test_figures_are_replaced_and_nothing_else_is_left(tmp_path):
    path = save(tmp_path)
    out = tmp_path / "out"
    out.mkdir()
    (out / "routing.png").write_text("old")
    (out / "mine.txt").write_text("mine")
    paths = draw(["routing", "routing"], path, out)
    assert [p.name for p in paths] == ["routing.png", "routing_entropy.png"]
    assert size_of(out / "routing.png")[0] > 100
    assert (out / "mine.txt").read_text() == "mine"
    assert len(list(out.iterdir())) == 3


def test_an_unknown_figure(tmp_path):
    with pytest.raises(
        UserError,
        match=r"'reconstrucions' \(did you mean reconstructions\?\); valid",
    ):
        draw(["routing", "reconstrucions"], "nowhere", tmp_path)


def test_a_missing_checkpoint(tmp_path):
    path = save(tmp_path)
    with pytest.raises(UserError, match=f"no checkpoint .*-3; found {path}"):
        draw(["routing"], path.replace("-0", "-3"), tmp_path / "out")


def test_a_network_without_a_decoder(tmp_path):
    path = save(tmp_path, remake=False)
    for name in ("reconstructions", "perturbations", "multimnist"):
        with pytest.raises(UserError, match="model.ckpt-0 has no decoder"):
            draw([name], path, tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())


def test_data_of_another_shape(tmp_path):
    path = save(tmp_path, ImageShape(20, 28, 1, 10))
    with pytest.raises(UserError, match="for images of 20x28x1 .* 28x28x1"):
        draw(["routing"], path, tmp_path / "out")


def test_a_folder_that_cannot_be_written(tmp_path):
    path = save(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="file cannot be made: File exists"):
        draw(["routing"], path, tmp_path / "file")
    with pytest.raises(UserError, match="below cannot be made: Not a dir"):
        draw(["routing"], path, tmp_path / "file" / "below")
    (tmp_path / "out" / "routing.png").mkdir(parents=True)
    with pytest.raises(UserError, match="routing.png cannot be written: Is a"):
        draw(["routing"], path, tmp_path / "out")
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["routing.png"]
    with pytest.raises(UserError, match="file/figures cannot be made: Not a"):
        draw(
            ["routing"],
            path,
            tmp_path / "new",
            summary_dir=str(tmp_path / "file"),
        )


def test_the_command_prints_the_files_or_one_line(tmp_path):
    path = save(tmp_path)

    def run(*arguments):
        return commands.run(
            "figures.py",
            *arguments,
            f"--checkpoint={path}",
            f"--output_dir={tmp_path / 'out'}",
            "--num_examples=1",
            env={**os.environ, "MPLBACKEND": "tkagg"},  # no screen is needed
        )

    code, output, errors = run("routing")
    assert code == 0, errors
    assert output.splitlines() == [
        str(tmp_path / "out" / name)
        for name in ("routing.png", "routing_entropy.png")
    ]
    code, _, errors = run("multimnist")
    assert code == 1
    assert errors.splitlines()[-1].startswith(
        "figures.py: the figure multimnist shows two digits"
    )
    assert "Traceback" not in errors
