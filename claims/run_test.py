"""robustness.py on a small network trained on the embedded digits."""

import json
import runpy
import shutil

import numpy as np
import pytest

import experiment
from claims import report
from claims.attacks import Network
from claims.changes_test import DIRECTIONS
from claims.measures import TESTS, Examiner, choose
from claims.run import run_tests
from common.errors import UserError
from common.files import make_folder, sole_process
from config import Config
from input_data import keys
from testing import untrained
from testing.commands import ROOT, output_of
from testing.small_models import SIZES, small_shape
from testing.tiny_files import WRITERS
from training.evaluate import Evaluator, named_checkpoints
from training.formats import open_checkpoint

COUNT, STEPS = 90, 4


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of a training; 13 % of the test digits are wrong."""
    folder = str(tmp_path_factory.mktemp("trained"))
    sizes = "conv_channels=16,num_prime_capsules=4"
    fast = "optimizer=muon,learning_rate=0.004,schedule=cosine"
    config = Config(
        summary_dir=folder, max_steps=30, hparams_override=f"{sizes},{fast}"
    )
    experiment.run(config)
    return folder


def command(folder, *arguments):
    flags = "--dataset=digits", f"--num_examples={COUNT}", f"--steps={STEPS}"
    script = ROOT / "robustness.py", f"--output_dir={folder}"
    return output_of(*script, *flags, *arguments)


@pytest.fixture(scope="module")
def results(trained, tmp_path_factory):
    """Folder and results of all tests of the trained network, as two."""
    folder = tmp_path_factory.mktemp("results")
    networks = f"a={trained}", f"b={trained}"
    output = command(folder, *networks)
    assert "about" in output  # the time of PGD
    return folder, output, json.loads((folder / "robustness.json").read_text())


@pytest.fixture(scope="module")
def by_severity(results):
    """A function from a test to the results of the first network."""

    def found(test):
        ours = [r for r in results[2]["results"] if r["network"] == "a"]
        return {r["severity"]: r for r in ours if r["test"] == test}

    return found


@pytest.fixture(scope="module")
def loaded(trained):
    """The model, and its images and labels."""
    config = Config(train=False, checkpoint=trained, eval_size=COUNT)
    _, model, pipeline = Evaluator(config).load(open_checkpoint(trained))
    ((x, y),) = pipeline.evaluation_batches(COUNT)
    return model, x[keys.IMAGES], y[keys.LABELS]


def test_severity_0_is_the_error_of_experiment(by_severity, trained):
    config = Config(train=False, checkpoint=trained, eval_size=COUNT)
    wrong = experiment.run(config).wrong
    assert 0 < wrong < COUNT / 2
    for test, severities in choose().items():
        found = by_severity(test)
        assert list(found) == list(severities)
        unchanged = {"scale": 1, "iterations": 3}.get(test, 0)
        if test == "detect":
            odd = by_severity("fgsm")[0]["wrong_examples"]
            assert found[0]["wrong"] == sum(n % 2 for n in odd)
        else:
            assert found[unchanged]["wrong"] == wrong
            assert found[unchanged]["num_examples"] == COUNT


def test_shifts_are_those_of_an_evaluation_of_moved_arrays(
    by_severity, loaded, trained, tmp_path
):
    _, images, labels = loaded
    padded = np.pad(images, [(0, 0), (3, 3), (3, 3), (0, 0)])
    for n, image in enumerate(padded):
        down, right = DIRECTIONS[n % 8]
        padded[n] = np.roll(image, (3 * down, 3 * right), (0, 1))
    moved = np.round(255 * padded[:, 3:-3, 3:-3]).astype("uint8")
    np.save(tmp_path / "x_test", moved)
    np.save(tmp_path / "y_test", labels.argmax(axis=-1))
    data = {"dataset": "arrays", "data_dir": str(tmp_path)}
    score = experiment.run(Config(train=False, checkpoint=trained, **data))
    assert by_severity("shift")[3]["wrong"] == score.wrong


def test_attacks_and_their_detection(by_severity):
    pgd, fgsm, detect = map(by_severity, ("pgd", "fgsm", "detect"))
    for eps in (0.1, 0.2, 0.3):
        assert pgd[eps]["wrong"] >= fgsm[eps]["wrong"] > fgsm[0]["wrong"]
        odd = [n for n in pgd[eps]["wrong_examples"] if n % 2]
        assert abs(detect[eps]["success"] - len(odd)) <= 1
        assert detect[eps]["undetected"] <= detect[eps]["success"]
        assert detect[eps]["num_examples"] == COUNT // 2
        assert detect[eps]["threshold"] == detect[0]["threshold"]
    aware = detect[0.3]["against_detector"]
    assert aware["undetected"] > detect[0.3]["undetected"]


def test_results_do_not_depend_on_the_batch_size(by_severity, loaded):
    model, images, labels = loaded
    network = Network(model, 37)
    small = Examiner(network, images, labels, STEPS, 0)
    for test, severity in (("pgd", 0.1), ("noise", 0.3), ("iterations", 2)):
        found, expected = small.run(test, severity), by_severity(test)[severity]
        assert found["wrong_examples"] == expected["wrong_examples"]
    found, expected = small.run("detect", 0), by_severity("detect")[0]
    assert found["threshold"] == pytest.approx(expected["threshold"], rel=1e-5)
    # The threshold has 5 % false alarms on the images that set it.
    _, decoded = network.predict(images[::2])
    distances = [np.linalg.norm(d) for d in images[::2] - decoded]
    alarms = sum(d > found["threshold"] for d in distances)
    assert alarms == int(0.05 * (len(distances) - 1)) + 1


def test_tables_pictures_and_resuming(results, trained):
    folder, output, content = results
    assert "McNemar's p" in output
    rows = (folder / "robustness.csv").read_text().splitlines()
    # Tests and four more measures, each of two networks.
    assert len(rows) == 1 + 2 * (len(TESTS) + 4)
    assert any(
        row.startswith('shift,b,1,"1, 4, 8",') and row.endswith(",1")
        for row in rows
    )
    assert r"\begin{tabular}" in (folder / "robustness.tex").read_text()
    for name in ("robustness.png", "attacked.png"):
        assert (folder / name).stat().st_size > 5000
    done = content["results"][:-3]
    path = folder / "robustness.json"
    path.write_text(json.dumps({**content, "results": done}))
    flags = f"a={trained}", f"b={trained}", "--figure_format=svg"
    again = command(folder, *flags)
    assert json.loads(path.read_text()) == content
    assert again.count("wrong") == 1
    assert (folder / "attacked.svg").is_file()


@pytest.fixture
def arrays(tmp_path):
    """A function that tests by `noise`; returns results by checkpoint."""
    images = np.random.default_rng(0).integers(0, 255, (20, 28, 28), "uint8")
    np.save(tmp_path / "x_test", images)
    np.save(tmp_path / "y_test", np.arange(20) % 10)

    def run(output, severities, **others):
        data = {"dataset": "arrays", "data_dir": str(tmp_path)}
        config = Config(train=False, eval_size=20, **data, **others)
        networks = [f"{name}={tmp_path / name}" for name in "ab"]
        networks = named_checkpoints(networks, config)
        folder = make_folder(tmp_path / output)
        run_tests(
            networks, config, folder, choose(["noise"], severities), 1, None
        )
        text = (folder / "robustness.json").read_text()
        return [
            (r["network"], r["severity"], r["seed"], r["wrong_examples"])
            for r in json.loads(text)["results"]
        ]

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


def test_tables_have_the_severities_that_were_asked_for(arrays, tmp_path):
    arrays("out", ["0.1", "0.2", "0.4"])
    arrays("out", ["0.5", "0.5", "0.2"])
    text = (tmp_path / "out" / "robustness.csv").read_text()
    for name in "ab":
        assert f'noise,{name},1,"0.2, 0.2, 0.5"' in text


def test_a_second_process_in_the_folder_is_refused(
    arrays, tmp_path, monkeypatch
):
    command = ["robustness.py", f"--output_dir={tmp_path}", f"a={tmp_path}/a"]
    monkeypatch.setattr("sys.argv", [*command, "--dataset=digits"])
    stop = pytest.raises(SystemExit, match="another process .* in ")
    with sole_process(tmp_path, "testing"), stop:
        runpy.run_path(str(ROOT / "robustness.py"), run_name="__main__")


def test_a_network_of_nan_detects_nothing(tmp_path):
    network, architecture = untrained.small(remake=True)
    network.set_weights([np.nan * w for w in network.get_weights()])
    untrained.save(tmp_path / "nan", network, architecture, dataset="digits")
    config = Config(train=False, eval_size=8)
    networks = named_checkpoints([f"nan={tmp_path}/nan"], config)
    tests = choose(["detect"], ["0.1"])
    run_tests(networks, config, tmp_path, tests, 1, None)

    def refuse(word):
        raise AssertionError(f"{word} is not JSON")

    text = (tmp_path / "robustness.json").read_text()
    (found,) = json.loads(text, parse_constant=refuse)["results"]
    aware = found["against_detector"]["undetected"]
    assert (found["wrong"], found["undetected"], aware) == (4, 4, 4)
    assert (found["threshold"], found["false_alarms"]) == (None, 0)


def test_an_edited_file_is_an_error(arrays, tmp_path):
    arrays("out", ["0.3"])
    path = tmp_path / "out" / "robustness.json"
    text = path.read_text().replace('"num_examples": 20', '"num_examples": 0')
    path.write_text(text)
    with pytest.raises(UserError, match=r"json: .*num_examples must not be 0"):
        arrays("out", ["0.3"])
    assert path.read_text() == text


def result(network, checkpoint, severity, wrong):
    of = {"network": network, "checkpoint": checkpoint, "test": "rotate"}
    counts = {"wrong": len(wrong), "num_examples": 10, "wrong_examples": wrong}
    return {**of, "severity": severity, **counts}


def test_means_deviations_and_mcnemar():
    rows = [
        result(network, f"{network}{trial}", severity, wrong)
        for network, offset in (("a", 0), ("b", 5))
        for trial in range(2)
        for severity in (0, 30, 60, 90)
        for wrong in [list(range(offset, offset + 1 + 2 * trial))]
    ]
    head, (first, second) = report.summary(rows)
    assert first[:4] == ["rotate", "a", 2, "30, 60, 90"]
    assert first[6:8] == [20, pytest.approx(14.142, abs=1e-3)]
    # Each is wrong alone 4 times: p of 4 of 8.
    assert (first[-1], second[-1]) == (None, "1")
    third = [result("c", "c0", 60, list(range(10)))]
    _, (*_, last) = report.summary(rows + third)
    assert last[-1] == f"{2 * 0.5**9:.2g}"  # one trial in common: 9 to 0
    assert len(head) == len(last)


SLOW = ("inverted_attention", "matrix_capsule", "vb_capsule")  # to compile


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(m, marks=[pytest.mark.slow] * (m in SLOW))
        for m in SIZES
        if m != "photo_capsule"
    ],
)
def test_every_model(model):
    network, _ = untrained.small(model, small_shape(model))
    images = np.random.default_rng(0).random((3, 18, 20, 2)).astype("float32")
    labels = np.eye(3, dtype="float32")
    one = Examiner(Network(network, 4), images, labels, 1, 0)
    fitting = [test for test in TESTS if one.misfit(test) is None]
    assert len(fitting) >= 9
    for test in ("fgsm", *fitting[9:]):
        counts = one.run(test, 2 if test == "iterations" else 0.1)
        assert 0 <= counts["wrong"] <= counts["num_examples"]


@pytest.fixture
def others(tmp_path):
    """Checkpoints and data that do not fit, by name."""
    colors = keys.ImageShape(24, 24, 3, 10)
    for name, dataset, network in (
        ("plain", "digits", untrained.small("baseline")),
        ("two", "digits", untrained.small(num_targets=2)),
        ("cifar10", "cifar10", untrained.small(shape=colors)),
    ):
        untrained.save(tmp_path / name, *network, dataset=dataset)
    (tmp_path / "arrays").mkdir()
    for name in ("arrays", "cifar10"):
        WRITERS[name](tmp_path / name)
    return tmp_path


@pytest.mark.parametrize(
    ("networks", "dataset", "message"),
    [
        ("", None, "NAME=CHECKPOINT"),
        ("a={} a={}", None, "a="),
        ("a=none", None, "none"),
        ("a={}/plain", None, "detect"),
        ("a={}/two", None, "two"),
        ("a={}/plain", "arrays", "plain"),
        ("a={}/cifar10", "cifar10", "cifar10"),
    ],
)
def test_networks_that_do_not_fit(others, networks, dataset, message):
    folder = str(others / dataset) if dataset else None
    data = {"dataset": dataset, "data_dir": folder}
    config = Config(train=False, eval_size=COUNT, **data)
    arguments = networks.format(*[others] * 2).split()
    with pytest.raises(UserError, match=message):
        run_tests(
            *(named_checkpoints(arguments, config), config, others),
            *(choose(["detect"]), STEPS, None),
        )


@pytest.mark.parametrize(
    ("test", "severity"),
    [
        *(("rotate", "x"), ("shift", "0.5"), ("pgd", "nan"), ("blur", "-1")),
        *(("scale", "0"), ("iterations", "0"), ("noise", "inf")),
        ("rotat", "1"),
    ],
)
def test_severities_that_do_not_fit(test, severity):
    assert choose(["pgd"], ["0", "0.05"]) == {"pgd": (0, 0.05)}
    with pytest.raises(UserError, match=f"{severity} .*{test}|'{test}'"):
        choose([test], ["0" if test == "pgd" else "1", severity])
