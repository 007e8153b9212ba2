"""Bad input ends a command with one line that names the file or the flag."""

import pytest

import experiment
from common.errors import exit_on_user_error
from config import Config
from testing.commands import ROOT, run


def message_of(capsys, **settings):
    with pytest.raises(SystemExit) as stop, exit_on_user_error("experiment.py"):
        experiment.run(Config(**settings))
    assert "Traceback" not in capsys.readouterr().err
    return stop.value.code


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"train": False, "checkpoint": "none/model.ckpt-1"}, "none"),
        *(({"summary_dir": None}, "--summary_dir"), ({"data_dir": "no"}, "no")),
        *(({"hparams_override": t}, t) for t in ("rooting", "routing=0")),
        *(({"num_gpus": 64}, "_gpus=64"), ({"checkpoint": "x"}, "--check")),
        *(({"device": "gpu:7"}, "=gpu:7"), ({"num_processes": 2}, "es=2")),
        ({"pairs": "below", "num_targets": 2}, "--pairs"),
        ({"epochs": 2, "max_steps": 9}, "--epochs"),
        *(
            ({"patience": 2, k: 1}, "--pati")
            for k in ("eval_every", "validate")
        ),
        ({"class_weight": "7=0"}, "--class_weight=7=0: "),
        ({"dataset": "builtins:print"}, "--dataset=builtins:print"),
    ],
)
def test_wrong_settings(tmp_path, capsys, settings, name):
    settings = {"summary_dir": str(tmp_path / "run"), **settings}
    message = message_of(capsys, **settings)
    assert message.startswith("experiment.py: ")
    assert name in message
    assert "\n" not in message


def test_a_number_in_the_environment(tmp_path, capsys, monkeypatch):
    variable = "KERAS_DISTRIBUTION_NUM_PROCESSES"
    monkeypatch.setenv(variable, "abc")
    message = message_of(capsys, summary_dir=str(tmp_path))
    assert message.startswith(f"experiment.py: {variable}: ")


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("experiment.py --max_steps=3 --max_steps=4", "max_steps"),
        ("experiment.py --summary_dir=x --init_checkpoint=", "init_checkpoint"),
        ("demo.py --host=", "--host"),
        ("predict.py --checkpoint= a.png", "--checkpoint"),
        ("predict.py --class_names= a.png", "--class_names"),
        ("compare.py --output_dir=. --settings=", "--settings"),
        ("predict.py -x.png", "follow --"),
        ("predict.py", "--export"),
        ("predict.py --export=mnist.onnx", "mnist.onnx"),
        ("input_data/mnist/mnist_shift.py --shift=-1 --data_dir=.", "shift"),
        ("robustness.py --output_dir=. --steps=0 a=b", "steps"),
        ("robustness.py a=b", "output_dir"),
        ("input_data/affnist/affnist_generate.py --copies=0", "copies"),
    ],
)
def test_wrong_commands(tmp_path, command, name):
    script, *arguments = command.split()
    code, output, errors = run(ROOT / script, *arguments, cwd=tmp_path)
    assert (code, output) == (1, "")
    (line,) = errors.splitlines()
    assert line.startswith(f"{script.rpartition('/')[2]}: ")
    assert name in line
