"""Data sets through a whole job, and the commands that make them."""

import dataclasses
import pathlib
import subprocess
import sys
import time

import pytest

import experiment
from input_data.generators import affine
from input_data.splits import Split
from old.errors import UserError
from testing import tiny_files
from training.config import Config

ROOT = pathlib.Path(__file__).parents[1]


def run(folder, script, *flags, **environment):
    """Exit code, standard output and error of a command in a folder."""
    done = subprocess.run(
        [sys.executable, str(ROOT / script), *flags],
        env={
            "PATH": "/usr/bin:/bin",
            "TF_CPP_MIN_LOG_LEVEL": "3",
            **environment,
        },
        cwd=folder,
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout, done.stderr


def small(folder, **settings):
    """The config of a short job of a small network on data in a folder."""
    return Config(
        data_dir=str(folder / "data"),
        summary_dir=str(folder / "out"),
        hparams_override="conv_channels=4,num_prime_capsules=1,remake=false",
        batch_size=4,
        max_steps=2,
        **settings,
    )


def test_trains_and_evaluates_on_a_folder_of_images(tmp_path, capsys):
    for number in range(6):
        for name, top in (("low", 12), ("high", 2)):
            image = tiny_files.random_images(1, 20, 20, 3, seed=number)[0] // 8
            image[top : top + 6] = 250
            path = tmp_path / "data" / name / f"{number}.png"
            tiny_files.write_png(path, image)
    job = small(
        tmp_path, dataset="images", image_size=20, color=True, validate=True
    )
    experiment.run(job)
    assert "Training capsule on images: 8 images" in capsys.readouterr().out
    evaluation = dataclasses.replace(job, train=False)
    experiment.run(evaluation)
    assert "Total wrong predictions: " in capsys.readouterr().out
    with pytest.raises(UserError, match="was trained with --seed=0"):
        experiment.run(dataclasses.replace(evaluation, seed=1))


def test_makes_affnist_and_trains_on_it(tmp_path, capsys):
    affine.generate("digits", None, Split.TRAIN, tmp_path / "data", 1, 0)
    printed = capsys.readouterr().out
    assert "training_and_validation.mat: 1437 images" in printed
    experiment.run(small(tmp_path, dataset="affnist"))
    assert "Trained to step 2" in capsys.readouterr().out


def test_images_too_small_name_the_smallest_size(tmp_path):
    tiny_files.write_images(tmp_path / "data")
    with pytest.raises(UserError, match=r"16x16 are too small.* 17x17"):
        experiment.run(small(tmp_path, dataset="images", image_size=16))


@pytest.mark.slow
def test_without_network_the_program_stops_at_once(tmp_path):
    start = time.monotonic()
    code, _, errors = run(
        tmp_path,
        "experiment.py",
        "--dataset=mnist",
        f"--summary_dir={tmp_path / 'out'}",
        HOME=str(tmp_path),
        https_proxy="http://127.0.0.1:9",
    )
    assert time.monotonic() - start < 120
    assert code == 1
    (message,) = (
        line for line in errors.splitlines() if line.startswith("experiment")
    )
    assert "--data_dir" in message
    assert "--dataset=digits" in message
    assert "Variant folder" not in errors  # a warning of TFDS
    assert "Traceback" not in errors


@pytest.mark.slow
def test_affnist_generate_from_another_folder(tmp_path):
    code, output, errors = run(
        tmp_path,
        "input_data/affnist/affnist_generate.py",
        *("--dataset=digits", "--copies=1", "--output_dir=out"),
    )
    assert code == 0, errors
    assert "test.mat: 360 images" in output
    assert (tmp_path / "out" / "test.mat").is_file()


@pytest.mark.slow
def test_norb_convert_s_errors_are_one_line(tmp_path):
    flags = (f"--data_dir={tmp_path}", f"--output_dir={tmp_path}")
    code, _, errors = run(tmp_path, "input_data/norb/norb_convert.py", *flags)
    assert code == 1
    assert errors.splitlines()[-1].startswith("norb_convert.py: --data_dir=")
    assert "Traceback" not in errors


def test_wrong_flags_of_a_command_are_one_line_and_a_hint(tmp_path):
    script = "input_data/mnist/mnist_shift.py"
    for flag in ("--nomulti_targets=1", "--shift=x", "--shft=1"):
        code, _, errors = run(tmp_path, script, "--data_dir=out", flag)
        assert code == 1
        _, hint = errors.splitlines()
        assert hint == "Pass --help to see all flags."
