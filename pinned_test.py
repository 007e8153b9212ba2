"""Behavior that must not change, whatever the modules look like inside.

Command lines are run and their output and files compared with
testing/pinned.json; no product file is imported. To be quick, most
commands run in forks of one process that has imported TensorFlow.
"""

import json
import os
import pathlib
import re
import shutil
from hashlib import sha256

import numpy as np
import pytest

from testing import commands
from testing.events import events_of
from testing.saved_arrays import saved

ROOT = pathlib.Path(__file__).resolve().parent
PINNED = json.loads((ROOT / "testing" / "pinned.json").read_text())
# Checkpoints of each model, and small files of MNIST and smallNORB.
FILES = ROOT / "testing" / "pinned" / "files.tar.xz"
ENVIRONMENT = {
    **os.environ,
    "CUDA_VISIBLE_DEVICES": "",
    "KERAS_BACKEND": "tensorflow",
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "TF_ENABLE_ONEDNN_OPTS": "1",
}
# Runs command lines, each in a fork of this process, and writes what each
# prints to a file.
RUNNER = """
import os, runpy, shlex, sys
import keras, tensorflow, tensorboard
sys.path.insert(0, os.getcwd())
_, folder, *lines = sys.argv
for number, line in enumerate(lines):
    if child := os.fork():
        if os.waitpid(child, 0)[1]:
            sys.exit(f"failed: {line}")
        continue
    file = open(f"{folder}/{number}", "w")
    os.dup2(file.fileno(), 1)
    sys.argv = shlex.split(line)
    runpy.run_path(sys.argv[0], run_name="__main__")
    sys.exit()
"""


def run(tmp, named_lines):
    """Runs a dict of command lines, which must succeed.

    Returns a dict of their standard outputs. $DIR stands for the folder `tmp`.
    """
    output = tmp / "output"
    output.mkdir()
    lines = [line.replace("$DIR", str(tmp)) for line in named_lines.values()]
    commands.output_of("-c", RUNNER, output, *lines, env=ENVIRONMENT)
    return {
        name: (output / f"{number}").read_text().replace(str(tmp), "$DIR")
        for number, name in enumerate(named_lines)
    }


def flags_of(command, flag="--help"):
    """Dict from flag to default as --help prints it, without TensorFlow."""
    code = (
        "import runpy, sys\n"
        f"sys.argv = [{command!r}, {flag!r}]\n"
        "sys.modules |= {'keras': None, 'tensorflow': None}\n"
        f"runpy.run_path({command!r}, run_name='__main__')\n"
    )
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**ENVIRONMENT, "PYTHONPATH": path}
    status, output, errors = commands.run("-c", code, env=environment)
    assert status, "absl exits with 1 after --help, too"
    assert "Traceback" not in errors, errors
    parts = re.split(r"^  --(?:\[no\])?(\w+):", output, flags=re.M)
    defaults = [re.search(r"\(default: '(.*)'\)", part) for part in parts[2::2]]
    return {
        name: match and match[1]
        for name, match in zip(parts[1::2], defaults, strict=True)
    }


def documented_hparams():
    """Dict from model to dict from name to default, of docs/flags.md."""
    page = (ROOT / "docs" / "flags.md").read_text()
    page = page[page.index("## Hyper-parameters") :]
    common, *sections = re.split(r"^Of `(\w+)`:$", page, flags=re.M)

    def rows(table):
        found = re.findall(r"^\| `([\w=]+)` \| (.*?) \|", table, flags=re.M)
        return {name: default.strip("` ") for name, default in found}

    return {
        model: {**rows(common), **rows(table)}
        for model, table in zip(sections[::2], sections[1::2], strict=True)
    }


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A folder and a dict from name to the output of each command."""
    tmp = tmp_path_factory.mktemp("pinned")
    shutil.unpack_archive(FILES, tmp)
    return tmp, run(tmp, PINNED["commands"])


def require_pinned(found, pinned):
    """Fails if something pinned is missing or differs; more is allowed."""
    assert {key: found.get(key) for key in pinned} == pinned


def require_weights(path, pinned):
    """Compares sums of magnitudes of the network's weights."""
    sums = {
        name: float(np.abs(array.astype(float)).sum())
        for name, array in saved(path).items()
        if not name.startswith("optimizer")
    }
    assert sums == pytest.approx(pinned, rel=1e-5, abs=1e-6)


def require_counts(output, pinned):
    document = json.loads(output)
    assert document["loss"] == pytest.approx(pinned["loss"], rel=1e-4)
    for row, kept in zip(document["classes"], pinned["classes"], strict=True):
        require_pinned(row, kept)
    same = {name: document[name] for name in ("classes", "loss")}
    require_pinned(document, {**pinned, **same})


@pytest.mark.parametrize("command", PINNED["flags"])
def test_flags_and_their_defaults_without_importing_tensorflow(command):
    require_pinned(flags_of(command), PINNED["flags"][command])


def test_a_wrong_flag_is_refused_without_importing_tensorflow():
    assert not flags_of("experiment.py", "--max_step=3")


@pytest.mark.parametrize("model", PINNED["hparams"])
def test_documented_hyper_parameters_and_their_defaults(model):
    require_pinned(documented_hparams()[model], PINNED["hparams"][model])


@pytest.mark.slow
def test_tags_and_files_of_a_training_and_its_evaluation(results):
    folder = results[0] / "whole"
    for part, pinned in PINNED["tags"].items():
        events = events_of(folder / part)
        tags = {
            tag: events.SummaryMetadata(tag).plugin_data.plugin_name
            for tag in events.Tags()["tensors"]
        }
        require_pinned(tags, pinned)
    paths = (str(p.relative_to(folder)) for p in folder.rglob("*"))
    files = {re.sub(r"tfevents\.[1-9].*", "tfevents.*", path) for path in paths}
    assert files >= {*PINNED["files"]}
    for part in ("train", "test"):
        lines = (folder / part / "curve.csv").read_text().splitlines()
        assert lines[0] == "step,loss,accuracy"
        assert lines[-1].startswith("10,")


@pytest.mark.slow
def test_printed_results(results):
    _, outputs = results
    # Without those of progress and speed.
    kept = r"Trained to|Evaluate by|\$DIR|Total|Mean of|Ensemble of"
    for name, pinned in PINNED["lines"].items():
        lines = outputs[name].splitlines()
        assert [line for line in lines if re.match(kept, line)] == pinned
    # Older checkpoints count the same.
    for name, pinned in PINNED["counts"].items():
        require_counts(outputs[name], pinned)


@pytest.mark.slow
def test_weights_and_hyper_parameters_after_4_steps_and_after_resuming(results):
    tmp, _ = results
    for folder, pinned in PINNED["weights"].items():
        require_weights(tmp / folder, pinned)
    for folder, pinned in PINNED["hparams in checkpoints"].items():
        described = json.loads((tmp / folder / "checkpoint.json").read_text())
        require_pinned(described["architecture"]["hparams"], pinned)


@pytest.mark.slow
def test_records_are_the_same_bytes(results):
    tmp, _ = results
    digests = {
        str(path.relative_to(tmp)): sha256(path.read_bytes()).hexdigest()
        for folder in ("mnist", "digits")
        for path in (tmp / folder).rglob("*tfrecords*")
    }
    assert digests == PINNED["records"]


@pytest.mark.slow
@pytest.mark.parametrize("model", PINNED["slow"])
def test_other_models(tmp_path, model):
    pinned = PINNED["slow"][model]
    shutil.unpack_archive(FILES, tmp_path)
    outputs = run(tmp_path, pinned["commands"])
    for name, counts in pinned["counts"].items():
        require_counts(outputs[name], counts)
    for folder, sums_of in pinned["weights"].items():
        require_weights(tmp_path / folder, sums_of)
