"""Behavior that must not change, whatever the modules look like inside.

Command lines are run and their output and files compared with
testing/pinned.json; no product file is imported. To be quick, most
commands run in forks of one process that has imported TensorFlow.
"""

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
from hashlib import sha256

import numpy as np
import pytest

from testing import commands
from testing.events import events_of
from testing.saved_arrays import assert_same_state, saved

ROOT = pathlib.Path(__file__).resolve().parent
PINNED = json.loads((ROOT / "testing" / "pinned.json").read_text())
FILES = ROOT / "testing" / "pinned" / "files.tar.xz"
ENVIRONMENT = {
    **os.environ,
    "CUDA_VISIBLE_DEVICES": "",
    "KERAS_BACKEND": "tensorflow",
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "TF_ENABLE_ONEDNN_OPTS": "1",
}
# Runs each line of standard input, the arguments of a command as JSON, in a
# fork of this process.
RUNNER = """
import json, os, runpy, sys
import keras, tensorflow, tensorboard
sys.path.insert(0, os.getcwd())
for number, line in enumerate(sys.stdin.read().splitlines()):
    sys.argv = json.loads(line)
    child = os.fork()
    if child:
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        continue
    for descriptor, name in ((1, "out"), (2, "err")):
        file = open(f"{FOLDER}/{number}.{name}", "w")
        os.dup2(file.fileno(), descriptor)
    runpy.run_path(sys.argv[0], run_name="__main__")
    sys.exit()
"""


def run(tmp, lines):
    """Runs commands, a dict from name to command line.

    Returns a dict from name to standard output; "failures" is what commands
    that failed wrote as errors. $DIR stands for the folder `tmp`.
    """
    output = tmp / "output"
    output.mkdir()
    arguments = [
        shlex.split(line.replace("$DIR", str(tmp))) for line in lines.values()
    ]
    process = subprocess.run(
        [sys.executable, "-c", f"FOLDER = {str(output)!r}\n{RUNNER}"],
        input="\n".join(map(json.dumps, arguments)),
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=ENVIRONMENT,
    )
    codes = process.stdout.split()
    assert len(codes) == len(lines), process.stderr
    outputs = {"failures": ""}
    for number, name in enumerate(lines):
        printed = (output / f"{number}.out").read_text()
        outputs[name] = printed.replace(str(tmp), "$DIR")
        if codes[number] != "0":
            errors = (output / f"{number}.err").read_text()
            outputs["failures"] += f"\n{lines[name]}\n{errors}"
    return outputs


def sums(path):
    """Dict from name to sum of magnitudes of the network's weights."""
    return {
        name: float(np.abs(array.astype(float)).sum())
        for name, array in saved(path).items()
        if not name.startswith("optimizer")
    }


def unpack(tmp):
    """Writes checkpoints of each model and small MNIST and smallNORB files."""
    shutil.unpack_archive(FILES, tmp)


def digests_of_records(tmp):
    """Dict from path to SHA-256 of all record files."""
    paths = [
        path
        for folder in ("mnist", "digits", "norb")
        for path in (tmp / folder).rglob("*tfrecords*")
    ]
    return {
        str(path.relative_to(tmp)): sha256(path.read_bytes()).hexdigest()
        for path in paths
    }


def result_lines(output):
    """Printed lines without those of progress and speed."""
    kept = r"Trained to|Evaluate by|\$DIR|Total|Mean of|Ensemble of"
    return [line for line in output.splitlines() if re.match(kept, line)]


def files_in(folder):
    """Names of files below a folder, those of events without their time."""
    names = {
        re.sub(r"tfevents\.[1-9].*", "tfevents.*", str(p.relative_to(folder)))
        for p in folder.rglob("*")
        if p.is_file()
    }
    return sorted(names)


def flags_of(command, flag="--help"):
    """Dict from flag to default as --help prints it; imports no TensorFlow."""
    code = (
        "import runpy, sys\n"
        f"sys.argv = [{command!r}, {flag!r}]\n"
        "try:\n"
        f"    runpy.run_path({command!r}, run_name='__main__')\n"
        "finally:\n"
        "    assert 'tensorflow' not in sys.modules, 'imported'\n"
        "    assert 'keras' not in sys.modules, 'imported'\n"
    )
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**ENVIRONMENT, "PYTHONPATH": path}
    status, output, errors = commands.run("-c", code, env=environment)
    assert status, "absl exits with 1 after --help, too"
    assert "imported" not in errors, errors
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
    unpack(tmp)
    return tmp, run(tmp, PINNED["commands"])


def require_pinned(found, pinned):
    """Fails if something pinned is missing or differs; more is allowed."""
    assert {key: found.get(key) for key in pinned} == pinned


def require_weights(path, pinned):
    assert sums(path) == pytest.approx(pinned, rel=1e-5, abs=1e-6)


def require_counts(output, pinned):
    document = json.loads(output)
    assert document["loss"] == pytest.approx(pinned["loss"], rel=1e-4)
    require_pinned(document, {**pinned, "loss": document["loss"]})


@pytest.mark.parametrize("command", PINNED["flags"])
def test_flags_and_their_defaults_without_importing_tensorflow(command):
    require_pinned(flags_of(command), PINNED["flags"][command])


def test_a_wrong_flag_is_refused_without_importing_tensorflow():
    assert not flags_of("experiment.py", "--max_step=3")


@pytest.mark.parametrize("model", PINNED["hparams"])
def test_documented_hyper_parameters_and_their_defaults(model):
    require_pinned(documented_hparams()[model], PINNED["hparams"][model])


@pytest.mark.slow
def test_commands_succeed(results):
    _, outputs = results
    assert not outputs["failures"], outputs["failures"]


@pytest.mark.slow
def test_tags_of_tensorboard(results):
    tmp, _ = results
    for part, pinned in PINNED["tags"].items():
        events = events_of(tmp / "whole" / part)
        tags = {
            tag: events.SummaryMetadata(tag).plugin_data.plugin_name
            for tag in events.Tags()["tensors"]
        }
        require_pinned(tags, pinned)


@pytest.mark.slow
def test_files_of_a_training_and_its_evaluation(results):
    tmp, _ = results
    assert set(files_in(tmp / "whole")) >= set(PINNED["files"])
    for part in ("train", "test"):
        lines = (tmp / "whole" / part / "curve.csv").read_text().splitlines()
        assert lines[0] == "step,loss,accuracy"
        assert lines[-1].startswith("10,")


@pytest.mark.slow
def test_printed_results(results):
    _, outputs = results
    lines = {name: result_lines(outputs[name]) for name in PINNED["lines"]}
    assert lines == PINNED["lines"]


@pytest.mark.slow
def test_a_resumed_training_has_the_bits_of_one_without_a_break(results):
    tmp, _ = results
    paths = (tmp / f / "train" / "model.ckpt-10" for f in ("whole", "halves"))
    assert_same_state(*paths)


@pytest.mark.slow
def test_weights_and_hyper_parameters_after_4_steps_and_after_resuming(results):
    tmp, _ = results
    for folder, pinned in PINNED["weights"].items():
        require_weights(tmp / folder, pinned)
    for folder, pinned in PINNED["hparams in checkpoints"].items():
        described = json.loads((tmp / folder / "checkpoint.json").read_text())
        require_pinned(described["architecture"]["hparams"], pinned)


@pytest.mark.slow
def test_older_checkpoints_count_the_same(results):
    _, outputs = results
    for name, pinned in PINNED["counts"].items():
        require_counts(outputs[name], pinned)


@pytest.mark.slow
def test_records_are_the_same_bytes(results):
    tmp, _ = results
    assert digests_of_records(tmp) == PINNED["records"]


@pytest.mark.slow
@pytest.mark.parametrize("model", PINNED["slow"])
def test_other_models(tmp_path, model):
    pinned = PINNED["slow"][model]
    unpack(tmp_path)
    outputs = run(tmp_path, pinned["commands"])
    assert not outputs["failures"], outputs["failures"]
    for name, counts in pinned["counts"].items():
        require_counts(outputs[name], counts)
    for folder, sums_of in pinned["weights"].items():
        require_weights(tmp_path / folder, sums_of)
