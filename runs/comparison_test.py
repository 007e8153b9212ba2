import json
import re

import numpy as np
import pytest

from common.errors import UserError
from common.files import sole_process
from config import Config
from models.table import MODELS
from runs import pages, runner
from runs.comparison import CompareFlags, _trainings, compare

DIGITS = Config(dataset="digits", eval_size=20)


def result(wrong, seconds):
    network = {"weights": 1500, "weights_without_decoder": 1000}
    first = {"step": 5, "wrong": wrong + 9, "seconds": seconds / 2}
    last = {"step": 10, "wrong": wrong, "seconds": seconds}
    return (
        {"network": network | {"multiply_adds": 10**6}, "points": [first, last]}
        | {"training_seconds": seconds, "peak_megabytes": 10.0 * wrong}
        | {"training_images_per_second": 250.0 * seconds, "examples": 200}
        | {"inference_images_per_second": 300.0 * seconds, "wrong": wrong}
        | {"wrong_examples": list(range(wrong))}
    )


@pytest.fixture
def trained(monkeypatch):
    """The list of the trainings that were started, which take no time."""
    configs = []

    def train(config):
        configs.append(config)
        return result(4, 3.0)

    monkeypatch.setattr(runner, "train_and_evaluate", train)
    return configs


def test_flags_of_each_model():
    lines = [
        "all --batch_size=16 --dtype_policy=mixed_bfloat16",
        "baseline --batch_size=32 --noaugment",
        "capsule-r1 --hparams_override='routing=1, leaky=true'",
    ]
    common = Config(dataset="digits", augment=True, shift=1)
    trainings = _trainings(None, common, lines)
    # The model for photographs downloads weights.
    default = sorted({*MODELS} - {"photo_capsule"})
    assert list(trainings) == [*default, "capsule-r1"]
    assert "photo_capsule" in _trainings(None, common, ["photo_capsule"])
    for config in trainings.values():
        assert (config.dataset, config.shift) == ("digits", 1)
        assert config.dtype_policy == "mixed_bfloat16"
    baseline, capsule = trainings["baseline"], trainings["capsule-r1"]
    assert (baseline.batch_size, baseline.augment) == (32, False)
    assert (capsule.batch_size, capsule.augment) == (16, True)
    assert capsule.model == "capsule"
    assert capsule.hparams_override == "routing=1, leaky=true"


def test_wrong_settings():
    assert _trainings("capsule", DIGITS, ["capsule --shift=1"])
    wrong = ["capsul --shift=1", "capsule --nonsense=1", "capsule '--shift=1"]
    for line in [*wrong, "capsule --model=pooling", "capsule-a --shift=1", ""]:
        with pytest.raises(UserError):
            _trainings("capsule", DIGITS, [line])


def test_runs_are_kept_and_other_settings_refused(tmp_path, trained, capsys):
    settings = {"models": "baseline,baseline-wide", "steps": 400}
    settings |= {"output_dir": str(tmp_path), "figure_format": "svg"}
    lines = ["baseline-wide --hparams_override=dense_units=9"]
    for seeds, num_runs in ((1, 2), (2, 4), (2, 4)):
        compare(CompareFlags(**settings, seeds=seeds), DIGITS, lines)
        assert len(trained) == num_runs
    names = ["baseline", "baseline-wide"] * 2
    for config, name in zip(trained, names, strict=True):
        assert config.summary_dir == f"{tmp_path}/{name}/{config.seed}"
        assert config.model == "baseline"
        assert (config.max_steps, config.save_step) == (400, 80)
    assert [config.seed for config in trained] == [0, 0, 1, 1]
    output = capsys.readouterr().out
    assert "baseline, seed 0 (2 runs left):" in output
    assert re.search(r"wide, seed 1 \(1 run left, about \d+ min\)", output)
    assert "| baseline-wide |" in output
    head, _, row = (tmp_path / "comparison.csv").read_text().splitlines()
    assert re.fullmatch("model,weights,without .*error %,deviation,seeds", head)
    numbers = "1500,1000,1000000,10,0.05,750.0,900.0,40.0,2.0,0.0,2"
    assert row == f"baseline-wide,{numbers}"
    table = (tmp_path / "comparison.tex").read_text()
    assert r"baseline-wide & 1,500 & 1,000 & 1,000,000 & 10 & 0.05" in table
    assert r" & error \% & +- & seeds \\" in table
    assert (tmp_path / "error_by_time.svg").read_bytes().startswith(b"<?xml")
    for steps, others, message in (
        (7, lines, "of baseline: --steps=400, not --steps=7;"),
        (400, [f"{lines[0]}0"], "-wide: --hparams_override=dense_units=9, not"),
    ):
        settings["steps"] = steps
        with pytest.raises(UserError, match=message):
            compare(CompareFlags(**settings), DIGITS, others)


def test_files_and_folders_that_do_not_fit_are_refused(tmp_path, trained):
    np.save(tmp_path / "x_test", np.zeros((4, 28, 28), "uint8"))
    np.save(tmp_path / "y_test", np.arange(4))
    data = Config(dataset="arrays", data_dir=str(tmp_path))
    folder = tmp_path / "out"
    settings = CompareFlags(models="baseline", steps=4, output_dir=str(folder))
    for _ in range(2):
        compare(settings, data)
    assert len(trained) == 1
    np.save(tmp_path / "y_test", np.arange(4)[::-1])
    with pytest.raises(UserError, match="baseline on other images"):
        compare(settings, data)
    running = pytest.raises(UserError, match="is comparing")
    with sole_process(folder, "x"), running:
        compare(settings, data)
    path = folder / "comparison.json"
    text = path.read_text().replace('"wrong": 13', '"wrong": "13"')
    path.write_text(text)
    with pytest.raises(UserError, match=r"json: .*points/0/wrong must not be"):
        compare(settings, data)
    assert path.read_text() == text


def test_minutes_become_steps_once(tmp_path, trained, monkeypatch, capsys):
    measured = []

    def speed(_, steps):
        measured.append(steps)
        return 8.0

    monkeypatch.setattr(runner, "measure_speed", speed)
    sizes = {"minutes": 5.0, "points": 4, "seeds": 2, "models": "baseline"}
    compare(CompareFlags(output_dir=str(tmp_path), **sizes), DIGITS)
    assert measured == [30, 240]  # a tenth of the time
    steps = [(config.max_steps, config.save_step) for config in trained]
    assert steps == [(2400, 600), (2400, 600)]
    assert "digits, 0.05 to 0.05 min each" in capsys.readouterr().out


def test_pairs_of_models():
    def model(**wrong):
        run = result(4, 3.0)
        return {"runs": {s: run | {"wrong_examples": wrong[s]} for s in wrong}}

    models = {
        "a": model(s0=[*range(19), 30], s1=[5, 7]),
        "b": model(s0=[20, 30]),
        "c": model(s1=[7, 5]),
        "d": model(s0=[30], s1=[7, 8, 0], s2=[9]),
        "e": model(s0=[30]),
    }
    models["e"]["runs"]["s0"]["examples"] = 100  # not the same images
    _, _, *rows = pages.paired_table(models).splitlines()
    cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows]
    # McNemar: 2 * (1 + 20) / 2**20 of 19 images and 1.
    assert cells == [
        ["a", "b", "19: 0, 1, 2, 3, 4, 5, 6, ...", "1: 20", "4e-05"],
        ["a", "c", "0", "0", "1"],
        # 19 and 1 of the first seed, 1 and 2 of the second.
        ["a", "d", "20: s0/0, s0/1, s0/2, ...", "2: s1/0, s1/8", "0.00012"],
        ["b", "d", "1: 20", "0", "1"],
        ["c", "d", "1: 5", "2: 0, 8", "1"],
    ]


def test_a_row_is_of_medians_the_largest_memory_and_the_mean_error():
    runs = (2, 10.0), (5, 20.0), (14, 60.0)
    runs = {str(seed): result(*run) for seed, run in enumerate(runs)}
    head, (row,) = pages.comparison_rows({"capsule": {"runs": runs}})
    found = dict(zip(head, row, strict=True))
    assert found.pop("model") == "capsule"
    numbers = [1500, 1000, 10**6, 10, 20 / 60, 5000, 6000, 140]
    # 1, 2.5 and 7 % of 200 images are wrong.
    assert [*found.values()] == pytest.approx([*numbers, 3.5, 9.75**0.5, 3])
    names = "training minutes,training images/s,inference images/s,peak MB"
    assert ",".join([*found][4:8]) == names


@pytest.mark.parametrize("name", ["digits", "fashion", "mnist"])
def test_the_page_shows_the_results(name):
    docs = runner.ROOT / "docs"
    content = json.loads((docs / "comparison" / f"{name}.json").read_text())
    models = content["models"]
    page = (docs / "comparison.md").read_text()
    assert pages.paired_table(models) in page
    times = ["training_seconds", "peak_megabytes"]
    times += [f"{kind}_images_per_second" for kind in ("training", "inference")]
    for model in models.values():  # the page says: times are those of seed 0
        for run in model["runs"].values():
            run |= {key: model["runs"]["0"][key] for key in times}
    assert pages.markdown(*pages.comparison_rows(models), padded=True) in page


MODEL = {"runs": {"0": result(4, 3.0), "1": result(8, 3.0)}, "steps": 10}


def test_sixteen_models_differ_in_print_and_color():
    models = {f"model_{n}": MODEL for n in range(16)}
    for picture in pages.comparison_pictures(models, "", "test").values():
        (axes,) = picture.figure.axes
        markers = {line.get_marker() for line in axes.lines}
        looks = {(ln.get_color(), ln.get_linestyle()) for ln in axes.lines}
        assert len(markers) == len(looks) == len(axes.lines) == 16
        (legend,) = picture.figure.legends
        assert {text.get_text() for text in legend.texts} == set(models)


def test_names_do_not_break_tables():
    files = pages.table_files("a", ["b"], [["c\\d"]])
    assert r"c\textbackslash{}d" in files["a.tex"]
    table = pages.markdown(["model"], [["a|b"], ["c\nd\x1b"]])
    assert table.splitlines()[2:] == [r"| a\|b |", r"| c\nd\x1b |"]


def test_errors_by_time_and_by_weights():
    files = pages.comparison_pictures({"capsule": MODEL}, "title", "test")
    (by_time,) = files["error_by_time.png"].figure.axes
    (line,) = by_time.lines
    # 13 and 17, then 4 and 8 of 200 images are wrong.
    points = [1.5 / 60, 7.5, 3 / 60, 3]
    assert line.get_xydata().ravel() == pytest.approx(points)
    (band,) = by_time.collections
    corners = {tuple(c.round(3)) for c in band.get_paths()[0].vertices}
    assert corners >= {(0.025, 6.5), (0.025, 8.5), (0.05, 2), (0.05, 4)}
    assert by_time.get_xlabel() == "minutes of training"
    (by_weights,) = files["error_by_weights.png"].figure.axes
    (point,) = by_weights.lines
    assert point.get_xydata().tolist() == [[1000, 3]]  # without the decoder
    assert by_weights.get_xscale() == "log"
    (bar,) = by_weights.collections
    ends = [1000, 3 - 2**0.5, 1000, 3 + 2**0.5]
    assert bar.get_segments()[0].ravel() == pytest.approx(ends)
    for axes in (by_time, by_weights):
        labels = axes.get_title(), axes.get_ylabel()
        assert labels == ("title", "test error in %")
