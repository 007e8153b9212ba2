"""Checkpoints of single digits, evaluated on pairs of them."""

import json

import numpy as np
import pytest

import transfer
from evaluation import jobs
from input_data.features import ImageShape
from old.errors import UserError
from testing import commands, untrained
from training.config import Config


def save(folder, model, *shape, seed=0, **hparams):
    """Saves an untrained network; gives the path of its checkpoint."""
    network = untrained.small(model, *shape, seed=seed, **hparams)
    return untrained.save(folder / f"{model}{seed}", *network)


def evaluate(path, **flags):
    settings = {"eval_size": 30, "num_targets": 2, "pairs": "below", **flags}
    return jobs.evaluate_once(Config(train=False, checkpoint=path, **settings))


@pytest.mark.parametrize("model", ["pooling", "shared_capsule"])
def test_a_network_of_any_size_is_evaluated_on_pairs(tmp_path, capsys, model):
    path = save(tmp_path, model)
    result = evaluate(path)
    assert result.num_examples == 30
    assert 0 <= result.confident <= result.correct <= result.almost_correct
    counted = f"{result} (30 test pairs of digits)\n{result.measures}\n"
    assert counted in capsys.readouterr().out
    # Images of one object may have another size, too.
    assert evaluate(path, num_targets=1, pairs="overlap", pad=3).wrong <= 30
    assert "above 0.5" not in capsys.readouterr().out.split("\n")[-2]


@pytest.mark.parametrize(
    ("model", "hparams"),
    [("baseline", {}), ("shared_capsule", {"share_weights": False})],
)
def test_a_network_of_one_size_says_so(tmp_path, model, hparams):
    path = save(tmp_path, model, **hparams)
    with pytest.raises(UserError) as error:
        evaluate(path)
    assert str(error.value) == (
        f"{path} is for images of 28x28x1 in 10 classes with "
        "--num_targets=1, but digits with --num_targets=2 has images of "
        f"56x28x1 in 10 classes: the weights of model {model} depend on the "
        "size of the images"
    )


def test_another_number_of_classes_is_refused_whatever_the_size(tmp_path):
    path = save(tmp_path, "pooling", ImageShape(28, 28, 1, 9))
    with pytest.raises(UserError, match="in 9 classes.*in 10 classes$"):
        evaluate(path)


def test_the_command_compares_models_on_the_same_pairs(tmp_path):
    for seed in (0, 1):
        save(tmp_path, "shared_capsule", seed=seed)
    pooling = save(tmp_path, "pooling")
    out = tmp_path / "out"
    shared = f"{tmp_path}/shared_capsule{{}}/model.ckpt-0"
    config = Config(train=False, pairs="beside", eval_size=25)
    out.mkdir()
    (out / "transfer.json").write_text("of another run")
    models = transfer.models_of([f"ours={shared}"], 2)
    models |= transfer.models_of([f"rival={pooling}"], 1)
    paths = transfer.run(models, config, out, num_examples=4)
    assert sorted(paths) == sorted(out.iterdir())
    results = json.loads((out / "transfer.json").read_text())
    assert (results["dataset"], results["pairs"]) == ("digits", "beside")
    assert len(results["runs"]["rival"]) == 1
    runs = results["runs"]["ours"]
    assert [run["checkpoint"] for run in runs] == [
        shared.replace("{}", str(seed)) for seed in (0, 1)
    ]
    alone = evaluate(runs[1]["checkpoint"], pairs="beside", eval_size=25)
    assert runs[1]["pairs"]["correct"] == alone.correct
    assert runs[0]["single"]["num_examples"] == 25
    assert len(results["examples"]) == 4
    for example in results["examples"]:
        assert len(set(example["labels"])) == 2
        (first, more), (second, less) = example["predictions"]["ours"]
        assert first != second
        assert more >= less


@pytest.mark.parametrize(
    ("arguments", "num_trials", "message"),
    [
        (["/tmp/x"], 1, "/tmp/x is not of the form NAME=CHECKPOINT"),
        (["a=x", "a=y"], 1, "a is given twice"),
        (["a=x"], 2, r"needs \{\} in x, .* 0 to 1 go"),
        (["a=x{}"], 1, r"x\{\} names an ensemble by \{\}: say of how many"),
    ],
)
def test_wrong_arguments_are_one_line(arguments, num_trials, message):
    with pytest.raises(UserError, match=message):
        transfer.models_of(arguments, num_trials)


def test_missing_checkpoints_are_told_before_the_work(tmp_path):
    models = {"a": [str(tmp_path)], "b": ["/tmp/nothing/here"]}
    config = Config(train=False, pairs="below")
    message = "missing checkpoints: /tmp/nothing/here; found: "
    with pytest.raises(UserError, match=message):
        transfer.run(models, config, tmp_path, 4)
    assert list(tmp_path.iterdir()) == []


def test_networks_without_finite_numbers_are_refused(tmp_path):
    model, architecture = untrained.small("pooling")
    model.set_weights([np.full_like(w, np.nan) for w in model.get_weights()])
    path = untrained.save(tmp_path / "saved", model, architecture)
    config = Config(train=False, pairs="below", eval_size=9)
    with pytest.raises(UserError, match="numbers that are not finite"):
        transfer.run({"a": [path]}, config, tmp_path / "out", 4)
    assert list((tmp_path / "out").iterdir()) == []


def test_pairs_that_overlap_are_another_experiment(tmp_path):
    with pytest.raises(UserError, match="--pairs must be below or beside"):
        transfer.run({"a": ["x"]}, Config(train=False), tmp_path, 4)


def test_the_command_line(tmp_path):
    flag = f"--output_dir={tmp_path}"
    code, _, errors = commands.run("transfer.py", "x", flag)
    assert code == 1
    assert errors == "transfer.py: x is not of the form NAME=CHECKPOINT\n"
