import dataclasses
import signal
import sys

import pytest

from common.errors import Interrupted, UserError
from common.files import write_json
from config import Config
from runs import runner
from testing import commands

# Stands for experiment.py: writes what a training and evaluations leave.
FAKE = """
import json, os, pathlib, sys, time

flags = dict(f[2:].split("=", 1) for f in sys.argv[1:])
if flags.get("model") == "baseline":
    sys.exit(3)
if "train" not in flags:
    if flags.get("model") == "pooling":
        time.sleep(1)
        os.kill(os.getppid(), int(flags["seed"]))
        time.sleep(60)
    run = {"commit": "c", "weights": 9, "seconds": 5.0}
    run["machine"] = {"backend": "b", "device": "d", "cores": 2}
    run |= {"weights_without_decoder": 7, "multiply_adds": 3}
    run |= {"images_per_second": 256.0, "peak_megabytes": 4.0}
    run["steps"] = int(flags["max_steps"])
    pathlib.Path(flags["summary_dir"], "run.json").write_text(json.dumps(run))
    print("Trained in", flags["summary_dir"])
else:
    for step in (10, 15, 20, 25):
        document = {"step": step, "wrong": 50 - step, "num_examples": 50}
        document |= {"seconds": step / 5, "images_per_second": 100.0}
        document |= {"wrong_percent_per_object": 100 - 2 * step}
        document["wrong_examples"] = list(range(50 - step))
        print(json.dumps(document))
"""


@pytest.fixture(autouse=True)
def fake(tmp_path, monkeypatch):
    script = tmp_path / "fake.py"
    script.write_text(FAKE)
    monkeypatch.setattr(runner, "_COMMAND", (sys.executable, str(script)))
    return script


def test_a_run_is_what_the_commands_leave(tmp_path, capfd):
    config = Config(summary_dir=str(tmp_path), max_steps=25, save_step=10)
    result = runner.train_and_evaluate(config)
    assert list(result["network"].values()) == [9, 7, 3]
    assert (result["examples"], result["wrong"]) == (50, 25)
    assert result["wrong_examples"] == list(range(25))
    assert result["wrong_percent_per_object"] == 50
    assert result["training_seconds"] == 5.0
    assert result["training_images_per_second"] == 256.0
    assert result["inference_images_per_second"] == 100.0
    # Step 15 is that of an interruption.
    assert [point["step"] for point in result["points"]] == [10, 20, 25]
    assert [point["seconds"] for point in result["points"]] == [2.0, 4.0, 5.0]
    capfd.readouterr()
    assert runner.measure_speed(config, 10) == 256 / config.batch_size
    assert not capfd.readouterr().out  # it is of a temporary folder
    write_json(tmp_path / "x", {"a": [1, 20], "b": []})
    assert (tmp_path / "x").read_text() == '{\n "a": [ 1, 20 ],\n "b": []\n}\n'


def test_the_time_of_the_runs_that_are_left(monkeypatch):
    times = iter([0, 50, 100, 210])
    monkeypatch.setattr(runner.time, "monotonic", lambda: next(times))
    first, *others = runner.countdown(3)
    assert first == "3 runs left"
    # One took 100 seconds, two took 210.
    assert others == ["2 runs left, about 4 min", "1 run left, about 2 min"]


def test_edited_runs_and_commands_that_fail_are_errors(tmp_path, fake):
    config = Config(summary_dir=str(tmp_path), max_steps=25, save_step=10)
    with pytest.raises(UserError, match="3"):
        runner.run(dataclasses.replace(config, model="baseline"))
    fake.write_text(FAKE.replace('"seconds": 5.0', '"seconds": "5"'))
    with pytest.raises(UserError, match=r"run\.json: .*seconds must not be"):
        runner.train_and_evaluate(config)


def test_a_signal_stops_the_command(tmp_path):
    settings = {"summary_dir": str(tmp_path), "max_steps": 25}
    with pytest.raises(Interrupted) as stop:
        runner.run(Config(model="pooling", seed=signal.SIGINT, **settings))
    assert stop.value.signal_number == signal.SIGINT
    assert not (tmp_path / "run.json").exists()


@pytest.mark.slow
def test_a_command_ends_with_a_killed_parent(tmp_path, fake):
    program = (
        "import sys; from config import Config; from runs import runner\n"
        f"runner._COMMAND = (sys.executable, {str(fake)!r})\n"
        f"folder = {str(tmp_path)!r}\n"
        f"config = Config(model='pooling', seed={signal.SIGKILL:d},"
        " summary_dir=folder, max_steps=25)\n"
        "runner.run(config)"
    )
    # The output ends with the command, which would print "Trained in".
    code, output, _ = commands.run("-c", program)
    assert (code, output) == (-signal.SIGKILL, "")
