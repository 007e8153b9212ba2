import functools

import keras
import numpy as np
import pytest
from scipy.special import entr

import figures
from common.errors import UserError
from config import Config
from input_data.keys import ImageShape
from input_data.registry import Split
from testing import numpy_oracle, splits, untrained
from testing.events import events_of
from testing.pictures import assert_images, cells
from testing.small_models import small_model
from testing.tiny_files import NUM_TEST, write_arrays
from visualization import capsule_figures
from visualization.drawing import to_rgb
from visualization.trained_model import TrainedModel, covered_part, two_colors

NUM_EXAMPLES = 130  # more than a batch
NAMES = "ant", "bee", "cat", "dog"  # of `arrays_subject`


def subject_of(title, pipeline, model, num_targets=1, **hparams):
    spec = pipeline.spec
    network = small_model(model, spec.shape, num_targets, seed=3, **hparams)
    return TrainedModel(network, pipeline, title, spec.names)


@functools.cache
def make_subject(num_targets=1, model="capsule", **hparams):
    """A `TrainedModel` that tests share, as it takes long to trace."""
    sizes = {"num_targets": num_targets, "eval_size": NUM_EXAMPLES}
    pipeline = splits.load("digits", Split.TEST, **sizes)
    return subject_of("digits, tiny", pipeline, model, num_targets, **hparams)


def arrays_subject(folder, **hparams):
    """Like `make_subject`, of images of 20 x 18 pixels with two channels."""
    write_arrays(folder)
    pipeline = splits.load("arrays", Split.TEST, folder)
    subject = subject_of("arrays, tiny", pipeline, "capsule", **hparams)
    # With long capsules, so that routing changes the couplings.
    weights = subject.model.get_weights()
    subject.model.set_weights([3 * weight for weight in weights])
    return subject


def reconstructed(subject, example, classes):
    """The images of an example's capsules of some classes."""
    return [decoded(subject, example.capsules[c], c) for c in classes]


def decoded(subject, capsule, label):
    """The image [H, W, 1] of one class capsule [A], all others zeroed."""
    capsules = np.tile(capsule, (1, 10, 1))
    weights = subject.model.decoder.get_weights()
    image = numpy_oracle.decoder(capsules, [label], weights)
    return image.reshape(subject.model.network.input.shape[1:])


def test_figures_of_a_checkpoint(tmp_path):
    shape = ImageShape(36, 36, 1, 10)  # of pairs of digits
    network = untrained.small("capsule", shape, 2, class_atoms=2)
    path = untrained.save(tmp_path, *network, dataset="digits", num_targets=2)
    config = Config(train=False, checkpoint=path, eval_size=60)
    files, step = figures.draw(figures.FIGURES, config, num_examples=1)
    assert step == 0
    drawn = {name.partition("_")[0].removesuffix(".png") for name in files}
    assert drawn == {*figures.FIGURES}
    for picture in files.values():
        titles = [axes.get_title() for axes in picture.figure.axes]
        titles.append(picture.figure.get_suptitle())
        assert "digits, model.ckpt-0" in "".join(titles)
    figures.write_summaries(tmp_path, files, 5)
    events = events_of(tmp_path / "figures")
    tags = {f"{tag}.png" for tag in events.Tags()["tensors"]}
    assert tags == files.keys()
    assert events.Tensors("routing")[0].step == 5
    with pytest.raises(UserError, match="rooting"):
        figures.draw(["rooting"], config)


@pytest.mark.parametrize("num_targets", [1, 2])
def test_predictions_are_the_longest_capsules_beside_their_labels(num_targets):
    subject = make_subject(num_targets)
    examples = list(subject.examples())
    assert len(examples) == NUM_EXAMPLES
    for example in examples[:30]:
        longest = np.argsort(-example.lengths)[:num_targets]
        assert set(example.predictions) == set(longest)
        pairs = zip(example.labels, example.predictions, strict=True)
        for label, predicted in pairs:
            assert label == predicted or label not in example.predictions
    for is_right in (True, False):
        found = subject.first(3, is_right)
        expected = [e for e in examples if e.is_right == is_right][:3]
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one.image, other.image)


@pytest.mark.parametrize("num_targets", [1, 2])
def test_the_picture_of_reconstructions(num_targets):
    subject = make_subject(num_targets)
    (picture,) = capsule_figures.reconstructions(subject, 2).values()
    right, wrong = (subject.first(2, is_right) for is_right in (True, False))
    images, titles = [], []
    for example in [*right, *wrong]:
        labels, predictions = example.labels, example.predictions
        column = [to_rgb(example.image)]
        column += map(to_rgb, example.targets if num_targets == 2 else [])
        for classes in (labels, predictions):
            column += map(to_rgb, reconstructed(subject, example, classes))
        if example.is_right:
            column[-num_targets:] = [None] * num_targets
        images.append(column)
        titles.append("\n".join(map(subject.class_text, (labels, predictions))))
    assert [len(right), len(wrong)] == [2, 2]
    numbers = [""] if num_targets == 1 else [" 1", " 2"]
    rows = ["input", *(["target 1", "target 2"] if num_targets == 2 else [])]
    for kind in ("", " of\nprediction"):
        rows += [f"reconstruction{kind}{number}" for number in numbers]
    check_columns(picture, images, titles, rows)


def check_columns(picture, columns, titles, rows):
    """Checks images, None for none; half of the columns are right."""
    found, count = cells(picture), len(columns)
    assert_images(found, sum(zip(*columns, strict=True), ()))
    assert [cell.title for cell in found[:count]] == titles
    colors = ["black"] * (count // 2) + ["crimson"] * (count // 2)
    assert [cell.color for cell in found[:count]] == colors
    assert [cell.label for cell in found[::count]] == rows


def test_the_picture_of_two_digits():
    subject = make_subject(2)
    (picture,) = capsule_figures.multimnist(subject, 1).values()
    columns, titles = [], []
    for is_right in (True, False):
        (example,) = subject.first(1, is_right)
        labels, predictions = example.labels, example.predictions
        order = np.argsort(-example.lengths, kind="stable")
        absent = next(c for c in order if c not in labels + predictions)
        both = reconstructed(subject, example, labels)
        wrong = None
        if not is_right:
            wrong = two_colors(*reconstructed(subject, example, predictions))
        (other,) = reconstructed(subject, example, [absent])
        column = [to_rgb(example.image), two_colors(*example.targets)]
        column += [two_colors(*both), wrong, two_colors(both[0], other)]
        columns.append(column)
        shown = labels, predictions, [absent]
        titles.append("\n".join(map(subject.class_text, shown)))
    rows = ["input", "targets", "reconstructions\nof labels"]
    rows += ["reconstructions\nof predictions", "label 1 and\nabsent class"]
    check_columns(picture, columns, titles, rows)


def test_pictures_of_perturbations_move_one_dimension_at_a_time():
    subject = make_subject()
    right = [e for e in subject.examples() if e.is_right]
    classes = sorted({e.labels[0] for e in right})
    files = capsule_figures.perturbations(subject, 10)
    assert list(files) == [f"perturbations_{label}.png" for label in classes]
    assert len(capsule_figures.perturbations(subject, 1)) == 1
    label = classes[-1]
    capsule = next(e for e in right if e.labels == [label]).capsules[label]
    found, expected = cells(files[[*files][-1]]), []
    offsets = [f"{n * 5 / 100:+.2f}" if n else "0" for n in range(-5, 6)]
    assert [cell.title for cell in found[:11]] == offsets
    for atom, value in enumerate(capsule):
        text = f"dimension {atom} ({value:.2f})".replace("-0.00", "0.00")
        assert found[11 * atom].label == text
        for step in range(-5, 6):
            moved = capsule + 0.05 * step * np.eye(len(capsule))[atom]
            expected.append(to_rgb(decoded(subject, moved, label)))
    assert_images(found, expected)


@pytest.mark.parametrize("leaky", [False, True])
def test_maps_and_entropy_of_the_couplings(tmp_path, leaky):
    subject = arrays_subject(tmp_path, leaky=leaky)
    files = capsule_figures.routing(subject, 3)
    examples = list(subject.examples())
    images = np.stack([example.image for example in examples])
    couplings = subject.model.routing_of(images).couplings
    couplings = keras.ops.convert_to_numpy(couplings)
    iterations, count, height, width, types, classes = couplings.shape
    assert (iterations, count, types, classes) == (3, NUM_TEST, 2, 4)
    assert height != width
    *grid, bar = files["routing.png"].figure.axes
    rows = np.array(grid).reshape(-1, iterations)
    assert len(rows) == 3 * 2  # the longest capsule and the next, of 3 images
    part = covered_part(subject.model, images.shape[1:3])
    left, top = part["left"] - 0.5, part["top"] - 0.5
    right, bottom = left + part["width"], top + part["height"]
    for index, iteration in np.ndindex(rows.shape):
        example, axes = examples[index // 2], rows[index, iteration]
        label = np.argsort(-example.lengths)[index % 2]
        kind = ["predicted", "not predicted"][index % 2]
        text = f"class {NAMES[label]}\n({kind}: {example.lengths[label]:.2f})"
        assert axes.get_ylabel() == (text if iteration == 0 else "")
        title = f"iteration {iteration + 1}" if index == 0 else ""
        assert axes.get_title() == title
        image, *maps = axes.images
        light = 1 - 0.8 * to_rgb(example.image)
        np.testing.assert_allclose(image.get_array(), light, atol=1e-6)
        values = couplings[iteration, index // 2, ..., label].sum(axis=-1)
        # One for each view, which stand side by side.
        for found, view in zip(maps, (0, images.shape[2]), strict=True):
            place = left + view, right + view, bottom, top
            assert found.get_extent() == pytest.approx(place)
            np.testing.assert_allclose(found.get_array(), values, atol=1e-6)
    equal = types / (classes + leaky)
    assert maps[0].norm.vcenter == pytest.approx(equal)
    (line,) = bar.lines
    assert line.get_ydata() == pytest.approx([equal] * 2)
    sums = couplings[:, :3].sum(axis=-2)
    assert maps[0].norm.halfrange == pytest.approx(abs(sums - equal).max())
    (axes,) = files["routing_entropy.png"].figure.axes
    line, *points = axes.lines
    bound = np.log(classes + leaky)
    assert line.get_ydata() == pytest.approx([bound] * 2)
    assert (line.get_label(), line.get_linestyle()) == ("equal shares", "--")
    rest = 1 - couplings.sum(axis=-1, keepdims=True)
    shares = np.concatenate([couplings, rest.clip(min=0)], -1)
    entropies = entr(shares.astype("float64")).sum(-1)
    entropies = entropies.reshape(iterations, -1).mean(axis=1)
    found = [tuple(*point.get_xydata()) for point in points]
    np.testing.assert_allclose(found, [*enumerate(entropies, 1)], rtol=1e-6)
    texts = [(text.xy, text.get_text()) for text in axes.texts]
    assert texts == [(point, f"{point[1]:.4f}") for point in found]
    assert entropies[0] == pytest.approx(bound)  # routing starts equally
    assert len({*entropies}) == len(entropies)


def test_figures_that_fit_a_network():
    files = capsule_figures.routing(make_subject(model="efficient_capsule"), 2)
    assert set(files) == {"routing.png", "routing_entropy.png"}
    other = "homogeneous_capsule"
    for draw, message, network in (
        (capsule_figures.multimnist, "--num_targets=2", {}),
        (capsule_figures.reconstructions, "no decoder", {"remake": False}),
        (capsule_figures.routing, "no routing", {"model": other}),
    ):
        with pytest.raises(UserError, match=message):
            draw(make_subject(**network), 1)
