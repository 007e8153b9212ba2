"""The command line of compare.py, and what it leaves."""

import json
import pathlib
import shutil
import signal
import time

import pytest

import compare
from comparison.run import _seconds_at
from comparison.settings import Settings
from old.errors import Interrupted, UserError
from old.version import commit
from testing import commands
from testing.small_models import overrides
from training.process import sole_trainer

STEPS = 400
OWN = [
    "all --batch_size=4",
    *(
        f"{name} --hparams_override={overrides(name)}"
        for name in ("baseline", "efficient_capsule")
    ),
]


def settings(folder, **values):
    given = {
        "dataset": "digits",
        "eval_size": 20,
        "models": "baseline,efficient_capsule",
        "output_dir": str(folder),
        "points": 4,
        "steps": STEPS,
        **values,
    }
    return Settings(**given)


def start(folder):
    given = settings(folder)
    names = ("dataset", "eval_size", "models", "output_dir", "points", "steps")
    return commands.start(
        "compare.py",
        *(f"--{name}={getattr(given, name)}" for name in names),
        *(f"--settings={line}" for line in OWN),
    )


def read(folder):
    return json.loads((folder / "comparison.json").read_text())


@pytest.mark.slow
def test_an_interrupted_comparison_goes_on(tmp_path, capfd):
    folder = tmp_path / "comparison"
    process = start(folder)
    first = folder / "baseline" / "0" / "train" / "model.ckpt-100"
    while not first.is_dir() and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    code, output, errors = commands.finish(process)
    assert code == 128 + signal.SIGTERM, errors
    assert "Go on by: python " in errors
    assert "efficient_capsule, seed" not in output

    code, output, errors = commands.finish(start(folder))
    assert code == 0, errors
    assert "Resuming from" in output
    assert "| efficient_capsule |" in output
    content = read(folder)
    assert content["budget"] == {"minutes": None, "points": 4, "steps": STEPS}
    for name in ("baseline", "efficient_capsule"):
        (run,) = content["models"][name]["runs"].values()
        steps = [point["step"] for point in run["points"]]
        assert steps == [100, 200, 300, 400]
        seconds = [point["seconds"] for point in run["points"]]
        assert seconds == sorted(seconds)
        assert 0 < seconds[0] < run["training_seconds"]
        assert run["examples"] == 20
        assert run["wrong"] == run["points"][-1]["wrong"] < 20
        assert run["peak_megabytes"] > 10
        assert run["training_images_per_second"] > 1
        assert run["inference_images_per_second"] > 1
        assert run["network"]["weights"] > 100

    # Nothing is done again, and what is asked for must be the same.
    before = (folder / "comparison.json").stat().st_mtime_ns
    (folder / "error_by_time.png").unlink()
    capfd.readouterr()
    compare.run(settings(folder), OWN)
    output, _ = capfd.readouterr()
    assert "| efficient_capsule |" in output
    assert "seed 0" not in output
    assert (folder / "error_by_time.png").is_file()
    assert (folder / "comparison.json").stat().st_mtime_ns == before
    with pytest.raises(UserError, match="was begun with --steps=400, not 7"):
        compare.run(settings(folder, steps=7), OWN)
    with pytest.raises(UserError, match="begun with baseline by .*, not"):
        compare.run(settings(folder), OWN[:1])


def test_a_time_budget_becomes_steps(tmp_path, monkeypatch):
    from comparison import compare as module

    asked = []

    def in_own_process(function, config, *arguments):
        asked.append((function.__name__, config.model, *arguments))
        if function is module.measure_speed:
            return {"baseline": 8.0, "efficient_capsule": 0.5}[config.model]
        asked[-1] += (config.max_steps, config.seed, config.save_step)
        raise UserError("no steps were done")

    monkeypatch.setattr(module, "in_own_process", in_own_process)
    for name in ("baseline", "efficient_capsule"):
        given = settings(tmp_path, steps=None, minutes=2.0, models=name, seed=3)
        with pytest.raises(UserError, match=f"{name}, seed 3: no steps"):
            compare.run(given)
    assert asked == [
        ("measure_speed", "baseline", 12),
        ("measure_speed", "baseline", 8 * 12),
        ("train_and_evaluate", "baseline", 8 * 120, 3, 240),
        ("measure_speed", "efficient_capsule", 12),
        ("train_and_evaluate", "efficient_capsule", 60, 3, 15),
    ]
    # Measured once: a comparison that goes on has the same steps.
    assert read(tmp_path)["models"]["baseline"]["steps"] == 8 * 120


def test_a_model_stands_several_times_by_labels(tmp_path, monkeypatch):
    from comparison import compare as module

    configs = []

    def in_own_process(function, config):
        configs.append(config)
        network = {"weights": 7, "weights_without_decoder": 5}
        network["multiply_adds"] = None  # of a layer that does not tell
        return {
            "network": network,
            "training_seconds": 3.0,
            "training_images_per_second": 5.0,
            "inference_images_per_second": 6.0,
            "peak_megabytes": None,
            "examples": 20,
            "wrong": 4,
            "points": [{"step": STEPS, "wrong": 4, "seconds": 3.0}],
        }

    monkeypatch.setattr(module, "in_own_process", in_own_process)
    given = settings(tmp_path, models="baseline,baseline-wide", seeds=2)
    compare.run(given, ["baseline-wide --hparams_override=dense_units=9"])
    assert [
        (c.model, c.hparams_override, c.seed, c.summary_dir) for c in configs
    ] == [
        (
            "baseline",
            hparams,
            seed,
            str(tmp_path / f"baseline{label}" / str(seed)),
        )
        for seed in (0, 1)
        for label, hparams in (("", ""), ("-wide", "dense_units=9"))
    ]
    models = read(tmp_path)["models"]
    assert list(models) == ["baseline", "baseline-wide"]
    assert models["baseline"]["runs"]["0"]["commit"] == commit()


def test_other_settings_are_refused_after_an_early_interruption(
    tmp_path, monkeypatch
):
    from comparison import compare as module

    begun = []

    def in_own_process(function, config):
        folder = pathlib.Path(config.summary_dir) / "train"
        folder.mkdir(parents=True, exist_ok=True)
        if begun:
            (folder / "model.ckpt-5").mkdir(exist_ok=True)
        raise Interrupted("Stopped", signal.SIGTERM)

    monkeypatch.setattr(module, "in_own_process", in_own_process)
    with pytest.raises(Interrupted):
        compare.run(settings(tmp_path, steps=7), OWN)
    # What was only asked for, such as by a mistyped flag, counts for nothing.
    begun.append(True)
    with pytest.raises(Interrupted):
        compare.run(settings(tmp_path), OWN)
    with pytest.raises(UserError, match="begun with baseline by .*, not"):
        compare.run(settings(tmp_path), OWN[:1])
    with pytest.raises(UserError, match="was begun with --steps=400, not 7"):
        compare.run(settings(tmp_path, steps=7), OWN)
    with pytest.raises(Interrupted):
        compare.run(settings(tmp_path), OWN)
    # Nor is what was found lost with the folders of the trainings.
    content = read(tmp_path)
    content["models"]["baseline"]["runs"] = {"0": {}}
    (tmp_path / "comparison.json").write_text(json.dumps(content))
    shutil.rmtree(tmp_path / "baseline")
    with pytest.raises(UserError, match="was begun with --points=4, not 5"):
        compare.run(settings(tmp_path, points=5), OWN)
    # Nor are trainings taken for those of other settings without it.
    with pytest.raises(Interrupted):
        compare.run(settings(tmp_path), OWN)
    (tmp_path / "comparison.json").unlink()
    with pytest.raises(
        UserError, match="efficient_capsule has trainings that .* not"
    ):
        compare.run(settings(tmp_path, steps=7), OWN)


def test_a_folder_has_one_comparison(tmp_path):
    with (
        sole_trainer(tmp_path),
        pytest.raises(UserError, match="is training in .*another --output_dir"),
    ):
        compare.run(settings(tmp_path), OWN)


def test_seconds_until_a_step():
    rates = {10: 5.0, 20: 10.0, 30: 20.0}  # images/s, of batches of 2
    found = [_seconds_at(step, rates, 2) for step in (10, 20, 25, 30, 34)]
    assert found == pytest.approx([4.0, 6.0, 6.5, 7.0, 7.4])


@pytest.mark.parametrize("content", ["", "[]", '{"budget": {}}'])
def test_a_file_that_is_no_comparison_is_named(tmp_path, content):
    (tmp_path / "comparison.json").write_text(content)
    with pytest.raises(UserError, match="comparison.json does not describe"):
        compare.run(settings(tmp_path), OWN)
    assert (tmp_path / "comparison.json").read_text() == content


def test_help_is_light():
    _, output, errors = commands.run("-X", "importtime", "compare.py", "--help")
    assert "--settings" in output
    for heavy in ("tensorflow", "keras", "matplotlib", "numpy"):
        assert f" {heavy}\n" not in errors
