import dataclasses
import json
import shutil
from unittest.mock import Mock

import pytest

import experiment
from common.errors import UserError
from config import Config
from testing.saved_arrays import assert_same_state
from testing.small_models import overrides
from training import best
from training.checkpoint import checkpoint_path, find_all
from training.formats import open_checkpoint
from training.results import Results
from training.scores import Score

# With this learning rate, no error is ever smaller than the first one.
HPARAMS = overrides("capsule", remake=False, learning_rate=1e-12)


def settings(folder, **values):
    fixed = {"hparams_override": HPARAMS, "batch_size": 8, "validate": True}
    fixed["class_weight"] = "0=9"
    return Config(summary_dir=str(folder), **fixed, **values)


def write(folder, evaluations):
    """Writes errors and losses by step as if they had been evaluated."""
    for step, (wrong, loss) in evaluations.items():
        values = {"wrong": wrong, "loss": loss, "step": step}
        values |= {"num_examples": 9, "images": ""}
        path = folder / f"model.ckpt-{step}.validation.json"
        path.write_text(json.dumps(values))


@pytest.mark.parametrize(
    ("evaluations", "expected"),
    [
        ({2: (3, 0.5), 10: (1, 0.9), 6: (2, 0.1)}, 10),
        ({2: (1, 0.5), 10: (1, 0.4), 6: (2, 0.1)}, 10),
        ({2: (1, 0.4), 10: (1, 0.4), 6: (1, 0.4)}, 2),
        ({2: (1, None), 10: (1, 0.4), 6: (1, 0.5)}, 10),  # NaN
    ],
)
def test_the_best_has_the_smallest_error_then_loss_then_step(
    tmp_path, evaluations, expected
):
    write(tmp_path, evaluations)
    assert best.best_of(tmp_path).step == expected
    with pytest.raises(UserError, match=f"ckpt-{expected}, which was deleted"):
        open_checkpoint(tmp_path / "best")


@pytest.mark.parametrize(
    ("wrong", "ends"),
    [
        *(([5, 4, 4], False), ([5, 4, 4, 6], True), ([5, 5, 5], True)),
        *(([5, 6, 4, 6], False), ([5, 4, 3, 3, 6, 2], True), ([5], False)),
    ],
)
def test_patience_ends_at_the_second_evaluation_that_is_not_better(
    tmp_path, wrong, ends
):
    # One each 3 steps counts, up to step 15; those of step 7 and 18 do not.
    write(tmp_path, {3 * n: (w, 0.5) for n, w in enumerate(wrong, 1)})
    write(tmp_path, {7: (0, 0.5)})
    config = Config(patience=2, eval_every=3)
    assert best.ends_early(config, tmp_path, 15) == ends
    best.forget_after(tmp_path, 6)
    assert [e.step for e in best.evaluations(tmp_path)] == [3, 6][: len(wrong)]


def test_what_cannot_be_compared_is_not_recorded(tmp_path):
    checkpoint = Mock(path=tmp_path / "model.ckpt-2", step=2)
    checkpoint.run_settings = usual = {"dataset": "digits"}
    checkpoint.path.mkdir()
    made = Mock(checkpoint=checkpoint, score=Score(9, 8, 8, 8, 0.5))
    made.pipeline.evaluation_digest = ""
    for other in {"crops": 13}, {"dataset": "mnist"}, {"validate": False}, {}:
        made.config = Config(**usual | {"validate": True} | other)
        if not other:
            checkpoint.path.rmdir()  # by --keep
        best.record(made)
    assert not best.evaluations(tmp_path)
    checkpoint.path.mkdir()
    best.record(made)
    assert best.evaluations(tmp_path) == [(1, 0.5, 2, 9)]


def steps_in(folder):
    return [step for step, _ in find_all(folder / "train")]


def stored(folder):
    return best.evaluations(folder / "train")


@pytest.fixture(scope="module", autouse=True)
def without_pictures():
    """Drawing takes longer than evaluating."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Results, "_draw", lambda *_: None)
        yield


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """The folder of a training that ended at step 6."""
    folder = tmp_path_factory.mktemp("best") / "run"
    options = {"eval_every": 2, "patience": 2, "keep": 1}
    experiment.run(settings(folder, max_steps=20, **options))
    return folder


def test_a_training_ends_early_and_keeps_the_best(ended, tmp_path, capsys):
    evaluations = stored(ended)
    assert [e.step for e in evaluations] == [2, 4, 6]
    chosen = min(evaluations).step
    assert steps_in(ended) == [min(evaluations[:2]).step, 6]
    assert open_checkpoint(ended / "best").step == chosen
    report = json.loads((ended / "run.json").read_text())
    assert (report["steps"], report["best"]["step"]) == (6, chosen)
    # Repeated, it ends again.
    again = shutil.copytree(ended, tmp_path / "run")
    experiment.run(settings(again, max_steps=20, eval_every=2, patience=2))
    assert steps_in(again) == steps_in(ended)
    output = capsys.readouterr().out
    assert "Stopped at step 6: the last 2 evaluations had no smaller" in output
    assert f"at step {chosen}: {again / 'best'}\n" in output


def test_a_training_killed_before_an_evaluation_ends_the_same(ended, tmp_path):
    folder = tmp_path / "run"
    options = {"max_steps": 20, "patience": 2, "save_step": 2}
    experiment.run(settings(folder, **options | {"max_steps": 4}, eval_every=2))
    (folder / "train" / "model.ckpt-4.validation.json").unlink()
    (folder / "run.json").unlink()
    # Of a later step that a damaged disk has lost.
    write(folder / "train", {6: (0, 0.0)})
    experiment.run(settings(folder, **options, eval_every=2))
    assert stored(folder) == stored(ended)
    assert json.loads((folder / "run.json").read_text())["steps"] == 6
    both = (checkpoint_path(f / "train", 6) for f in (ended, folder))
    assert_same_state(*both)


def test_evaluations_of_another_process_count(ended, tmp_path, capsys):
    folder = tmp_path / "run"
    experiment.run(settings(folder, max_steps=6, save_step=2))
    with pytest.raises(UserError, match="best: no checkpoint was evaluated"):
        open_checkpoint(folder / "best")
    evaluating = settings(folder, train=False, eval_all=True, eval_timeout=0.1)
    experiment.run(evaluating)
    assert stored(folder) == stored(ended)
    # Those of fewer images do not, even if they came first.
    before = stored(folder)
    experiment.run(dataclasses.replace(evaluating, eval_size=5))
    assert "not compared" in capsys.readouterr().out
    assert stored(folder) == before
    for path in (folder / "train").glob("*.validation.json"):
        path.unlink()
    experiment.run(dataclasses.replace(evaluating, eval_size=5))
    experiment.run(evaluating)
    assert stored(folder) == before
    # A name for the best member of each training of an ensemble.
    for n in range(2):
        shutil.copytree(folder, tmp_path / f"seed{n}")
    options = {"train": False, "validate": True, "num_trials": 2}
    name = str(tmp_path / "seed{}" / "best")
    score = experiment.run(Config(checkpoint=name, **options))
    assert score.wrong == best.best_of(folder / "train").wrong


def test_epochs_give_the_steps(tmp_path, capsys):
    hparams = f"{HPARAMS},schedule=cosine"
    values = {"batch_size": 1000, "hparams_override": hparams}
    config = Config(summary_dir=str(tmp_path), epochs=2, **values)
    experiment.run(config)
    assert "2 epochs are 3 steps" in capsys.readouterr().out  # of 1,437 images
    assert open_checkpoint(tmp_path).run_settings["max_steps"] == 3
    command = json.loads((tmp_path / "run.json").read_text())["command"]
    assert command.endswith("--batch_size=1000 --max_steps=3")
    experiment.run(dataclasses.replace(config, epochs=3))
    assert steps_in(tmp_path) == [3, 5]
    assert "max_steps was 3 and is now 5" in capsys.readouterr().out
