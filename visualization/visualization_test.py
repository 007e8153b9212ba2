import functools
import io
import json

import matplotlib
import numpy as np
import pytest
from PIL import Image

import experiment
import figures
from common.errors import UserError
from config import Config
from input_data.registry import Split
from testing import numpy_oracle, splits, untrained
from testing.small_models import overrides, small_model
from visualization import capsule_figures, drawing, evaluation_figures, transfer
from visualization.trained_model import TrainedModel

NUM_EXAMPLES = 130


@functools.cache
def make_subject(num_targets=1, model="capsule", **hparams):
    """A `TrainedModel` with `NUM_EXAMPLES` examples, more than a batch.

    Tests share it, as its functions take long to trace: one that changes
    weights asks for hyper-parameters that no other does.
    """
    sizes = {"num_targets": num_targets, "eval_size": NUM_EXAMPLES}
    pipeline = splits.load("digits", Split.TEST, **sizes)
    spec = pipeline.spec
    network = small_model(model, spec.shape, num_targets, seed=3, **hparams)
    return TrainedModel(network, pipeline, "digits, tiny", spec.names)


def decoder_in_numpy(subject, capsule, label):
    """The image [28, 28, 1] of one class capsule [A], all others zeroed."""
    capsules = np.tile(capsule, (1, 10, 1))
    weights = subject.model.decoder.get_weights()
    image = numpy_oracle.decoder(capsules, [label], weights)
    return image.reshape(28, 28, 1)


def size_of(png):
    """(width, height) of the bytes of a PNG file, which must not be blank."""
    image = Image.open(io.BytesIO(png))
    assert len(image.convert("RGB").getcolors(2**24)) > 2
    return image.size


def test_figures_of_a_training(tmp_path):
    override = overrides("capsule", class_atoms=2)
    settings = {"batch_size": 8, "max_steps": 2, "summary_step": 1}
    settings |= {"num_targets": 2, "hparams_override": override}
    experiment.run(Config(summary_dir=str(tmp_path), **settings))
    assert min(size_of(evaluation_figures.learning_curve_png(tmp_path))) > 50
    path = str(tmp_path / "train" / "model.ckpt-2")
    config = Config(train=False, checkpoint=path, eval_size=60)
    files, step = figures.draw(figures.FIGURES, config, num_examples=1)
    assert step == 2
    assert {"routing.png", "routing_entropy.png", "multimnist.png"} < set(files)
    for name, content in files.items():
        if name.endswith(".png"):
            assert min(size_of(content)) >= 36
    figures.write_summaries(tmp_path, files, step)
    written = {p.name for p in (tmp_path / "figures").iterdir()}
    assert {"capsules.tsv", "projector_config.pbtxt", "sprite.png"} < written
    with pytest.raises(UserError, match="rooting"):
        figures.draw(["rooting"], config)


def test_transfer(tmp_path):
    with pytest.raises(UserError, match="NAME=CHECKPOINT"):
        figures.draw_transfer([], Config())
    network, architecture = untrained.small("shared_capsule")
    for number in range(2):
        untrained.save(tmp_path / str(number), network, architecture)
    template = f"a={tmp_path}/{{}}/model.ckpt-0"
    config = Config(train=False, dataset="digits", eval_size=90, num_trials=2)
    templates = [template, template.replace("a=", "b=", 1)]
    files = figures.draw_transfer(templates, config, num_examples=3)
    results = json.loads(files["transfer.json"])
    assert results["pairs"] == "below"
    assert len(results["runs"]["a"]) == 2
    assert results["runs"]["a"] == results["runs"]["b"]
    assert results["runs"]["a"][0]["pairs"]["num_examples"] == 90
    for name in ("transfer_accuracy.png", "transfer_pairs.png"):
        assert min(size_of(files[name])) > 50
    with pytest.raises(UserError, match="a=x"):
        figures.draw_transfer([template, "a=x"], config)


@pytest.mark.parametrize(
    ("counts", "total", "expected"),
    [([8], 10, (0.4902, 0.9433)), ([80, 90, 100], 100, (0.6516, 1.0))],
)
def test_confidence_intervals(counts, total, expected):
    interval = transfer.confidence_interval(counts, total)
    np.testing.assert_allclose(tuple(interval), expected, atol=1e-4)


@pytest.mark.parametrize("num_targets", [1, 2])
def test_examples_and_columns_of_reconstructions(num_targets):
    subject = make_subject(num_targets)
    examples = list(subject.examples())
    assert len(examples) == NUM_EXAMPLES
    for example in examples[:30]:
        longest = np.argsort(-example.lengths)[:num_targets]
        assert set(example.predictions) == set(longest)
        for label, predicted in zip(
            example.labels, example.predictions, strict=True
        ):
            assert label == predicted or label not in example.predictions
    for is_right in (True, False):
        example, *others = subject.first(3, is_right)
        assert {e.is_right for e in (example, *others)} == {is_right}
        _, column = capsule_figures.reconstruction_column(subject, example)
        rows = [column[name] for name in column if "prediction" in name]
        assert len(rows) == num_targets
        assert all((image is None) == is_right for image in rows)
        np.testing.assert_array_equal(column["input"], example.image)
    if num_targets == 1:
        with pytest.raises(UserError, match="--num_targets=2"):
            capsule_figures.multimnist(subject, 1)
        return
    classes, _ = capsule_figures.multimnist_column(subject, example)
    assert classes[2][0] not in classes[0] + classes[1]


def test_reconstructions_of_one_class_and_with_one_dimension_moved():
    subject = make_subject()
    example = next(subject.examples())
    moved = example.capsules[4].copy()
    capsules = capsule_figures.perturbed(moved)
    moved[2] += 0.15
    for capsule, label, expected in (
        (example.capsules[2], 2, example.capsules[2]),
        (example.capsules[7], 7, example.capsules[7]),
        (capsules[2 * 11 + 8], 4, moved),
    ):
        (image,) = subject.reconstruct(capsule[None], [label])
        expected = decoder_in_numpy(subject, expected, label)
        np.testing.assert_allclose(image, expected, atol=1e-5)
    with pytest.raises(UserError, match="no decoder"):
        make_subject(remake=False).reconstruct(example.capsules[:1], [0])


def test_projector_files():
    subject = make_subject()
    files = capsule_figures.embedding(subject, 7)
    vectors = np.loadtxt(io.BytesIO(files["capsules.tsv"]))
    examples = [e for _, e in zip(range(7), subject.examples(), strict=False)]
    expected = np.stack([e.capsules.ravel() for e in examples])
    np.testing.assert_allclose(vectors, expected, rtol=1e-4, atol=1e-6)
    lines = files["metadata.tsv"].splitlines()
    assert len(lines) == 8
    assert lines[1].split("\t")[0] == str(examples[0].labels[0])
    assert size_of(files["sprite.png"]) == (3 * 28, 3 * 28)


def test_entropy_of_couplings():
    couplings = np.array([[[0.25, 0.25]], [[0.5, 0.0]]], "float32")
    quarter, half = (p * np.log(1 / p) for p in (0.25, 0.5))
    np.testing.assert_allclose(
        capsule_figures.mean_entropy(couplings), [2 * quarter + half, 2 * half]
    )


def test_routing_by_self_attention():
    files = capsule_figures.routing(make_subject(model="efficient_capsule"), 2)
    assert set(files) == {"routing.png", "routing_entropy.png"}


def test_grids_and_colors():
    gray, color = np.full((2, 3, 1), 0.5), np.zeros((2, 3, 3))
    assert drawing.to_rgb(gray).shape == drawing.to_rgb(color).shape
    two = drawing.to_rgb(np.stack([gray[..., 0] - 3, gray[..., 0]], axis=-1))
    assert two.shape == (2, 6, 3)
    assert (two.min(), two.max()) == (0, 1)
    colors = drawing.two_colors(np.ones((1, 1, 1)), np.zeros((1, 1, 1)))
    np.testing.assert_array_equal(colors, [[[1, 0, 1]]])
    png = drawing.image_grid([gray, None, gray], 2, "title", ["a", "b"])
    assert min(size_of(png)) > 50
    assert drawing.truncate("a" * 20) == "a" * 13 + "…"


def test_pictures_do_not_depend_on_the_users_settings():
    images = [np.zeros((2, 3, 1))]
    expected = drawing.image_grid(images, 1, "title", ["$a_b"])
    with matplotlib.rc_context({"text.usetex": True, "font.size": 30}):
        before = dict(matplotlib.rcParams)
        assert drawing.image_grid(images, 1, "title", ["$a_b"]) == expected
        assert dict(matplotlib.rcParams) == before


def test_pictures_of_evaluations(tmp_path):
    (tmp_path / "test").mkdir()  # a file that another process has begun
    (tmp_path / "test" / "curve.csv").write_text("step,loss,accuracy\n")
    assert min(size_of(evaluation_figures.learning_curve_png(tmp_path))) > 50
    draw = evaluation_figures.confusion_matrix_png
    assert draw(np.eye(101), ["a"] * 101, "title") is None
    assert min(size_of(draw(np.eye(3), ["a", "b", "c"], "title"))) > 50
