"""robustness.py on a small network trained on the embedded digits."""

import contextlib
import dataclasses
import io
import json
import re
import runpy
import shutil

import numpy as np
import pytest
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath

import experiment
from claims import report
from claims.attacks import Network
from claims.changes import change_all
from claims.measures import TESTS, Examiner, choose
from claims.run import named_checkpoints, run_tests
from common.errors import UserError
from common.files import make_folder, sole_process
from config import Config
from input_data import keys
from input_data.photographs import StandardizedCrops
from testing import untrained
from testing.commands import ROOT, run_here
from testing.tiny_files import WRITERS, random_images
from training.evaluate import Evaluator
from training.formats import open_checkpoint

COUNT, STEPS = 90, 4
# Of the command; the other tests are run in this process.
CHOSEN = {test: TESTS[test][1] for test in ("shift", "pgd", "detect")}
OWN = "examples.routing_comparison:SharedWeights"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of a training; 13 % of the test digits are wrong."""
    folder = str(tmp_path_factory.mktemp("trained"))
    sizes = "conv_channels=16,num_prime_capsules=4"
    fast = "optimizer=muon,learning_rate=0.004,schedule=cosine"
    options = {"summary_dir": folder, "hparams_override": f"{sizes},{fast}"}
    experiment.run(Config(max_steps=30, **options))
    return folder


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """The untrained checkpoint of a model outside the table."""
    folder = tmp_path_factory.mktemp("own")
    return untrained.save(folder, *untrained.small(OWN), dataset="digits")


@pytest.fixture(scope="module")
def results(trained, own, tmp_path_factory):
    """Folder, output and results of the command on two networks."""
    folder = tmp_path_factory.mktemp("results")
    flags = "--dataset=digits", f"--num_examples={COUNT}", f"--steps={STEPS}"
    flags += f"--tests={','.join(CHOSEN)}", f"--model={OWN}"
    flags += f"--output_dir={folder}", f"a={trained}", f"own={own}"
    with contextlib.redirect_stdout(io.StringIO()) as output:
        assert not run_here("robustness.py", *flags)
    output = output.getvalue()
    return folder, output, json.loads((folder / "robustness.json").read_text())


@pytest.fixture(scope="module")
def loaded(trained):
    """The model, and its images and labels."""
    config = Config(train=False, checkpoint=trained, eval_size=COUNT)
    _, model, pipeline = Evaluator(config).load(open_checkpoint(trained))
    ((x, y),) = pipeline.evaluation_batches(COUNT)
    return model, x[keys.IMAGES], y[keys.LABELS]


@pytest.fixture(scope="module")
def counts(results, loaded):
    """A function from test and severity to the counts of the first network."""
    model, *data = loaded
    examiner = Examiner(Network(model, COUNT), *data, STEPS, 0)
    of_a = [r for r in results[2]["results"] if r["network"] == "a"]
    found = {(r["test"], r["severity"]): r for r in of_a}

    def of(*key):
        if key not in found:
            found[key] = examiner.run(*key)
        return found[key]

    return of


def test_errors_are_those_of_evaluations(counts, loaded, results, trained):
    config = Config(train=False, checkpoint=trained, eval_size=COUNT)
    wrong = experiment.run(config).wrong
    assert 0 < wrong < COUNT / 2
    for test in TESTS:
        found = counts(test, {"scale": 1, "iterations": 3}.get(test, 0))
        assert found["wrong_unchanged"] == found["wrong_examples"]
        if test == "detect":
            odd = counts("fgsm", 0)["wrong_examples"]
            assert found["wrong_examples"] == [n for n in odd if n % 2]
        else:
            assert (found["wrong"], found["num_examples"]) == (wrong, COUNT)
    model, images, labels = loaded
    logits, _ = Network(model, COUNT).predict(change_all("shift", images, 4, 0))
    is_wrong = logits.argmax(axis=-1) != labels.argmax(axis=-1)
    found = counts("shift", 4)["wrong_examples"]
    assert found == list(np.flatnonzero(is_wrong))
    tested = [(r["test"], r["severity"]) for r in results[2]["results"]]
    assert tested[:17] == [(t, s) for t in CHOSEN for s in CHOSEN[t]]


def test_attacks_and_their_detection(counts):
    first = counts("detect", 0)
    assert first["success"] == first["undetected"] == 0
    before = {*counts("fgsm", 0)["wrong_examples"]}
    for eps in (0.1, 0.2, 0.3):
        pgd, detect = counts("pgd", eps), counts("detect", eps)
        assert pgd["wrong"] >= counts("fgsm", eps)["wrong"] > len(before)
        odd = {n for n in pgd["wrong_examples"] if n % 2}
        assert abs(detect["wrong"] - len(odd)) <= 1
        new = odd - before  # only images that were right before count
        assert len(new) < len(odd)
        assert abs(detect["success"] - len(new)) <= 1
        assert detect["undetected"] <= detect["success"]
        assert detect["num_examples"] == COUNT // 2
        assert detect["threshold"] == first["threshold"]
    assert detect["against_detector"]["undetected"] > detect["undetected"]


def test_results_do_not_depend_on_the_batch_size(counts, loaded):
    model, images, labels = loaded
    network = Network(model, 37)
    small = Examiner(network, images, labels, STEPS, 0)
    for key in (("pgd", 0.1), ("noise", 0.3)):
        found = small.run(*key)["wrong_examples"]
        assert found == counts(*key)["wrong_examples"]
    found, threshold = small.run("detect", 0), counts("detect", 0)["threshold"]
    assert found["threshold"] == pytest.approx(threshold, rel=1e-5)
    # The threshold has 5 % false alarms on the images that set it.
    _, decoded = network.predict(images)
    distances = np.array([np.linalg.norm(d) for d in images - decoded])
    alarms = distances > found["threshold"]
    assert alarms[::2].sum() == int(0.05 * (COUNT // 2 - 1)) + 1
    assert found["false_alarms"] == alarms[1::2].sum() != alarms[::2].sum()


def test_tables_pictures_and_resuming(results, own, capsys):
    folder, output, content = results
    # Before the first test, the time of PGD is estimated.
    assert re.search(r"shift: 6 tests left, about \d+ min\n", output)
    for text in (
        "McNemar's p",
        f"{own} pgd: 2 tests left",
        "shift 4: nothing can be said about a and own, because their errors on",
    ):
        assert text in output
    rows = (folder / "robustness.csv").read_text().splitlines()
    assert rows[0].startswith("test,network,trials,severities,unchanged,low %,")
    # Tests and more measures; only the first network has a decoder.
    assert len(rows) == 1 + 2 * 3 + 3
    wrong = content["results"][0]["wrong"]
    assert rows[1].startswith(f'shift,a,1,"1, 4, 8",{100 * wrong / COUNT},')
    for name in ("robustness.png", "attacked.png"):
        assert (folder / name).stat().st_size > 5000
    done = content["results"][:-3]
    path = folder / "robustness.json"
    path.write_text(json.dumps({**content, "results": done}))
    config = Config(train=False, dataset="digits", eval_size=COUNT)
    of_own = dataclasses.replace(config, model=OWN)
    networks = named_checkpoints([f"own={own}"], of_own)
    run_tests(networks, config, folder, CHOSEN, STEPS, "svg")
    assert capsys.readouterr().out.count("wrong") == 1
    assert json.loads(path.read_text()) == content
    assert (folder / "attacked.svg").is_file()
    (folder / "attacked.png").unlink()
    chosen = {test: CHOSEN[test] for test in ("shift", "detect")}
    run_tests(networks, config, folder, chosen, STEPS, None)
    assert not (folder / "attacked.png").exists()  # own has no decoder


def test_names_of_own_models(own):
    name = f"{OWN}-1"
    (found,) = named_checkpoints([f"{name}={own}"], Config())
    assert found[:2] == (name, own)
    assert found[2].architecture.model == OWN
    with pytest.raises(UserError, match=f"add --model={OWN}"):
        named_checkpoints([f"own={own}"], Config())


@pytest.fixture
def arrays(tmp_path):
    """A function that tests by `noise`; returns results by checkpoint."""
    np.save(tmp_path / "x_test", random_images(20, 28, 28))
    np.save(tmp_path / "y_test", np.arange(20) % 10)

    def run(output, severities, steps=1, **others):
        data = {"dataset": "arrays", "data_dir": str(tmp_path)}
        config = Config(train=False, eval_size=20, **data, **others)
        names = [f"{name}={tmp_path / name}" for name in "ab"]
        networks = named_checkpoints(names, config)
        folder, chosen = tmp_path / output, choose(["noise"], severities)
        run_tests(networks, config, make_folder(folder), chosen, steps, None)
        content = json.loads((folder / "robustness.json").read_text())
        names = "network", "severity", "seed", "wrong_examples"
        return [tuple(r[name] for name in names) for r in content["results"]]

    for seed, name in enumerate("ab"):
        untrained.save(tmp_path / name, *untrained.small("baseline", seed=seed))
    return run


def test_results_belong_to_weights_images_and_settings(arrays, tmp_path):
    first = arrays("out", ["0", "0.3"])
    assert arrays("out", ["0", "0.3"]) == first
    shutil.rmtree(tmp_path / "b")
    untrained.save(tmp_path / "b", *untrained.small("baseline", seed=5))
    second = arrays("out", ["0", "0.3"])
    assert second == arrays("of_b", ["0", "0.3"])
    assert second[:2] == first[:2]
    assert second[2:] != first[2:]
    np.save(tmp_path / "y_test", np.arange(20)[::-1] % 10)
    third = arrays("out", ["0", "0.3"])
    assert third == arrays("of_labels", ["0", "0.3"]) != second
    # Results of other settings stay.
    fourth = arrays("out", ["0.3"], seed=1)
    assert fourth[:4] == third
    assert [row[2] for row in fourth[4:]] == [1, 1]
    assert len(arrays("out", ["0.3"], steps=2)) == 8
    # Tables have only the severities that were asked for.
    arrays("out", ["0.5", "0.5", "0.2"])
    text = (tmp_path / "out" / "robustness.csv").read_text()
    for name in "ab":
        assert f'noise,{name},1,"0.2, 0.2, 0.5"' in text


def test_a_second_process_or_an_edited_file(arrays, tmp_path, monkeypatch):
    command = ["robustness.py", f"--output_dir={tmp_path}", f"a={tmp_path}/a"]
    monkeypatch.setattr("sys.argv", [*command, "--dataset=digits"])
    stop = pytest.raises(SystemExit, match="another process .* in ")
    with sole_process(tmp_path, "testing"), stop:
        runpy.run_path(str(ROOT / "robustness.py"), run_name="__main__")
    path = tmp_path / "robustness.json"
    arrays("", ["0.3"])
    text = path.read_text().replace('"num_examples": 20', '"num_examples": 0')
    path.write_text(text)
    with pytest.raises(UserError, match=r"json: .*num_examples must not be 0"):
        arrays("", ["0.3"])
    assert path.read_text() == text


def result(network, test, severity, wrong, unchanged=(), **others):
    of = {"network": network, "test": test, "severity": severity}
    counts = {"wrong": len(wrong), "num_examples": 10, "wrong_examples": wrong}
    return {**of, **counts, "wrong_unchanged": [*unchanged], **others}


def test_means_deviations_and_mcnemar():
    rows = [
        result(network, "rotate", severity, wrong, range(trial))
        for network, offset in (("a", 0), ("b", 5))
        for trial in range(2)
        for severity in (0, 30, 60, 90)
        for wrong in [list(range(offset, offset + 1 + 2 * trial))]
    ]
    head, (first, second), sentence = report.summary(rows)
    assert first[:5] == ["rotate", "a", 2, "30, 60, 90", 5]
    assert first[7:9] == [20, pytest.approx(14.142, abs=1e-3)]
    # Each is wrong alone 4 times: p of 4 of 8.
    assert (first[-1], second[-1]) == (None, "1")
    assert sentence == "rotate 60: a and b have the same error."
    third = [result("c", "rotate", 60, list(range(10)))]
    _, (*_, last), sentences = report.summary(rows + third)
    assert last[3] == "60, 60, 60"  # what all have
    assert last[-1] == f"{2 * 0.5**9:.2g}"  # one trial in common: 9 to 0
    assert len(head) == len(last)
    # Two comparisons; means of 2 and 10 wrong images.
    assert sentences.splitlines()[1] == (
        "rotate 60: a is better than c by 80.0 points, significantly "
        f"(corrected p = {4 * 0.5**9:.2g})."
    )


def test_undetected_images_are_of_those_that_were_right():
    aware = {"wrong": 9, "undetected": 4}
    seen = {"undetected": 2, "against_detector": aware}
    rows = [
        result("a", "detect", 0.1, [*range(9)], range(2), **seen),
        result("b", "detect", 0.1, [*range(10)], range(10), **seen),
    ]
    _, table, sentence = report.summary(rows)
    tests = ["detect", "detect", "undetected", "undetected, detector attacked"]
    found = [(row[0], row[1], row[7]) for row in table]
    assert found == list(zip(tests, "abaa", (90, 100, 25, 50), strict=True))
    assert sentence.endswith("differ (20.0 and 100.0 %).")


def test_latex_tables_fit_a_page():
    rows = [
        result(name, "rotate", severity, [*range(trial * n)])
        for n, name in enumerate(("capsule", "homogeneous_capsule"))
        for severity in (15, 45, 90)
        for trial in (3, 7, 10)
    ]
    _, table, _ = report.summary(rows)
    text = report.latex([*table, *table], "digits, first 10 test images")
    assert text.count(r"\begin{table}") == text.count(r"\end{table}") == 1
    head, *lines = re.findall(r"(.*) \\\\", text)
    assert head.endswith("network & trials & unchanged & 15 & 45 & 90 & p")
    assert "± standard" not in text
    assert r"66.7 $\pm$ 35.1 & 66.7" in lines[1]
    # The page of an article is 345 points wide; cmr8 is wider than cmr10.
    font = FontProperties(family="cmr10", size=8 * 1.07)
    cells = [line.split("} ")[-1].split(" & ") for line in (head, *lines)]
    width = 2 * 2 * len(cells[0])
    for column in zip(*cells, strict=True):
        texts = [c.replace(r"$\pm$", "+").replace(r"\_", "x") for c in column]
        paths = [TextPath((0, 0), text, prop=font) for text in texts]
        width += max(path.get_extents().width for path in paths)
    assert 250 < width < 340
    caption = "digits, first 10 test images, rotate: images in \\%, unchanged"
    assert rf"\caption{{{caption}" in text


@pytest.mark.parametrize(
    ("dataset", "shape", "shift"),
    [("cifar10", (24, 24, 3, 10), 7), ("norb", (32, 32, 2, 5), 9)],
)
def test_networks_see_standardized_crops(dataset, shape, shift, tmp_path):
    WRITERS[dataset](tmp_path)
    network = untrained.small(shape=keys.ImageShape(*shape))
    path = untrained.save(tmp_path / "a", *network, dataset=dataset)
    config = Config(train=False, data_dir=str(tmp_path), eval_size=7)
    networks = named_checkpoints([f"a={path}"], config)
    chosen = choose(["shift", "detect", "iterations"])
    run_tests(networks, config, tmp_path, chosen, 2, None)
    content = json.loads((tmp_path / "robustness.json").read_text())
    first, *_, largest, detect, _, _, _, _, _, usual, _, _ = content["results"]
    assert (largest["test"], largest["severity"]) == ("shift", shift)
    _, model, pipeline = Evaluator(config).load(networks[0][2])
    ((x, y),) = pipeline.evaluation_batches(7)
    outputs = model.predict({keys.IMAGES: x[keys.IMAGES]}, verbose=0)
    is_wrong = outputs[keys.LOGITS].argmax(-1) != y[keys.LABELS].argmax(-1)
    for found in first, usual:  # 3 iterations
        assert found["wrong_examples"] == [*np.flatnonzero(is_wrong)]
    differences = y[keys.RECONS] - outputs[keys.RECONS]
    distances = [*map(np.linalg.norm, differences[::2])]
    expected = np.percentile(distances, 95)
    assert detect["threshold"] == pytest.approx(expected, rel=1e-5)


def test_networks_that_do_not_fit(tmp_path, monkeypatch):
    monkeypatch.setattr(StandardizedCrops, "in_pixels", lambda self: self)
    WRITERS["cifar10"](tmp_path)
    colors = keys.ImageShape(24, 24, 3, 10)
    for name, dataset, network in (
        ("plain", "digits", untrained.small("baseline")),
        ("two", "digits", untrained.small(num_targets=2)),
        ("cifar10", "cifar10", untrained.small(shape=colors)),
    ):
        untrained.save(tmp_path / name, *network, dataset=dataset)
    for networks, count, message in (
        *(("", 9, "NAME=CHECKPOINT"), ("a=x a=y", 9, "a=y")),
        *(("a={}/plain", 9, "detect"), ("a={}/plain", 1, "one test image")),
        *(("a={}/two", 9, "two"), ("a={}/cifar10", 9, "need pixels")),
    ):
        data_dir = str(tmp_path) if "cifar10" in networks else None
        config = Config(train=False, data_dir=data_dir, eval_size=count)
        names = networks.format(tmp_path).split()
        chosen = tmp_path, choose(["detect"]), STEPS, None
        with pytest.raises(UserError, match=message):
            run_tests(named_checkpoints(names, config), config, *chosen)


def test_severities_that_do_not_fit():
    assert choose(["pgd"], ["0", "0.05"]) == {"pgd": (0, 0.05)}
    wrong = "rotate=x rotate=1e300 shift=0.5 shift=1e23 pgd=nan pgd=1.5 "
    wrong += "blur=-1 blur=1e9 scale=0 scale=1e-300 iterations=0 "
    wrong += "iterations=1000 noise=inf rotat=1"
    for test, text in (pair.split("=") for pair in wrong.split()):
        with pytest.raises(UserError, match=f"{text} .*{test}|'{test}'"):
            choose([test], ["0" if test == "pgd" else "1", text])
