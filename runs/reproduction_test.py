import dataclasses
import json

import pytest

from common.errors import UserError
from common.files import sole_process
from models.hparams import parse_overrides
from models.table import find_model
from runs import flags_page, pages, reproduction, runner
from runs.pages import replace_between
from runs.reproduction import (
    EXPERIMENTS,
    ReproduceFlags,
    reproduce,
    training_config,
)

TEST = {"num_examples": 40, "wrong": 9, "confident": 30}
MACHINE = {"machine": {"backend": "b", "device": "d", "cores": 2}}
TRAINED = {"wrong": 7, "examples": 40, "training_seconds": 9.0, **MACHINE}
TRAINED["points"] = [{"step": step, "wrong": 7} for step in (938, 5628)]


@pytest.fixture
def configs(monkeypatch):
    """The configurations of evaluations; these and trainings take no time."""
    found, tests = [], [TEST, {**TEST, "wrong": 8}]
    monkeypatch.setattr(runner, "run", lambda c: found.append(c) or tests)
    monkeypatch.setattr(runner, "train_and_evaluate", lambda c: TRAINED)
    return found


def folders(root):
    names = "data", "output", "work"
    return {f"{name}_dir": f"{root}/{name}" for name in names}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_is_a_training(name):
    experiment = EXPERIMENTS[name]
    config = training_config(experiment, 3, ReproduceFlags())
    assert (config.max_steps, config.seed) == (experiment.steps, 3)
    assert experiment.other_test in ("", *reproduction.OTHER_TESTS)
    large = training_config(experiment, 3, ReproduceFlags(batch_size=1024))
    images = config.max_steps * config.batch_size
    assert 0 <= large.max_steps * 1024 - images < 1024
    hparams = find_model(config.model or "capsule").hparams
    overrides = config.hparams_override, large.hparams_override
    values, scaled = (hparams(**parse_overrides(hparams, o)) for o in overrides)
    for field in dataclasses.fields(hparams):
        value = getattr(values, field.name)
        if field.name.endswith("_steps"):
            value = pytest.approx(value * config.batch_size / 1024, abs=1)
        assert getattr(scaled, field.name) == value


def test_results_are_written_once(tmp_path, configs, monkeypatch, capsys):
    experiment = dataclasses.replace(EXPERIMENTS["shared-capsule"], members=2)
    monkeypatch.setitem(EXPERIMENTS, "shared-capsule", experiment)
    (tmp_path / "data" / "mnist").mkdir(parents=True)
    common = {"dtype_policy": "mixed_bfloat16", "seeds": "0,1"}
    settings = ReproduceFlags(**common, **folders(tmp_path))
    for is_done in (False, True):
        reproduce(["shared-capsule"], settings)
        output = capsys.readouterr().out
        assert ("0.json exists" in output) == is_done
        assert ("seed 0 (2 runs left):" in output) == (not is_done)
    runs, ensemble = reproduction.read(settings.output_dir, experiment)
    assert [run["seed"] for run in runs] == [0, 1]
    assert len(configs) == 5  # pairs, two checkpoints of each; the ensemble
    assert ensemble["wrong"] == 8
    folder = "$WORK_DIR/shared-capsule/mixed_bfloat16"
    first = runs[0]
    assert f"--summary_dir={folder}/0 " in first["command"]
    assert first["wrong"] == 7
    pairs = first["others"]["pairs below each other"]
    assert pairs["points"][0] == {"step": 938, "wrong": 8}
    assert "--pairs=below" in pairs["command"]
    assert "--data_dir=$DATA_DIR/mnist" in pairs["command"]
    assert "--dtype_policy=mixed_bfloat16" in pairs["command"]
    assert configs[-1].checkpoint.endswith("16/{}/train/model.ckpt-5628")
    assert str(tmp_path) not in json.dumps([runs, ensemble])
    # The ensemble of a member that was repeated is another one.
    folder = tmp_path / "output" / "shared-capsule"
    (folder / "1.json").unlink()
    reproduce(["shared-capsule"], settings)
    assert configs[-1].num_trials == 2
    assert len(configs) == 8
    (folder / "1.json").write_text(json.dumps({**first, "others": 3}))
    with pytest.raises(UserError, match=r"1\.json: .*others must not be 3"):
        reproduction.read(settings.output_dir, experiment)
    with sole_process(folder, ""), pytest.raises(UserError, match="reprod"):
        reproduce(["shared-capsule"], settings)
    capsys.readouterr()
    monkeypatch.setattr(reproduction, "_reproduce", lambda *_: None)
    reproduce(["all"], settings)
    skipped = capsys.readouterr().out.splitlines()
    datasets = [e.dataset for e in EXPERIMENTS.values()]
    assert len(skipped) == len(datasets) - datasets.count("mnist")


def test_the_pages_are_up_to_date():
    results = ReproduceFlags().output_dir
    for path, table in pages.result_tables(results).items():
        page = path.read_text()
        assert replace_between(page, "results", pages.markdown(*table)) == page
    text = flags_page.PAGE.read_text()
    assert flags_page.updated(text) == text, "python -m runs.flags_page"


def test_other_tests_read_their_own_data(tmp_path, configs, monkeypatch):
    changed = {"other_test": "affNIST", "members": 1}
    experiment = dataclasses.replace(EXPERIMENTS["mnist-3"], **changed)
    monkeypatch.setitem(EXPERIMENTS, "mnist-3", experiment)
    reproduce(["mnist-3"], ReproduceFlags(**folders(tmp_path)))
    config = configs[0]
    assert (config.dataset, config.eval_size) == ("affnist", 10000)
    assert config.data_dir == f"{tmp_path}/data/affnist"
    assert config.checkpoint.endswith("mnist-3/0/train/model.ckpt-938")
    (run,), _ = reproduction.read(tmp_path / "output", experiment)
    assert run["others"]["affNIST"]["examples"] == 40


def test_the_picture_shows_errors_by_epoch(tmp_path):
    for name, wrong in (("mnist-3", 50), ("mnist-3-muon", 30)):
        points = [{"step": 600, "wrong": 80}, {"step": 1800, "wrong": wrong}]
        run = {**TRAINED, "seed": 4, "batch_size": 100, "examples": 10_000}
        run |= {"command": "", "steps": 1800, "others": {}}
        (tmp_path / name).mkdir()
        path = tmp_path / name / "4.json"
        path.write_text(json.dumps({**run, "points": points}))
    (axes,) = pages.result_picture(tmp_path).figure.axes
    adam, muon, published = axes.lines
    assert adam.get_xydata().tolist() == [[1, 0.8], [3, 0.5]]
    assert muon.get_xydata().tolist() == [[1, 0.8], [3, 0.3]]
    assert muon.get_label() == "mnist-3-muon, seed 4"
    error = float(EXPERIMENTS["mnist-3"].published)
    assert list(published.get_ydata()) == [error, error]
