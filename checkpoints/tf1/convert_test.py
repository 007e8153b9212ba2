"""TF1 checkpoints: the optimiser's state, errors, conversion, and the jobs."""

import dataclasses
import os
import pathlib
import socket

import numpy as np
import pytest
import tensorflow as tf

import checkpoints
from checkpoints.checkpoint import JSON_FILE
from checkpoints.tf1 import convert, tf1_checkpoint
from checkpoints.tf1.tf1_checkpoint import Tf1Checkpoint, is_tf1, save
from evaluation.jobs import (
    evaluate_continuously,
    evaluate_ensemble,
    evaluate_once,
)
from old.errors import UserError
from testing import commands
from testing.saved_arrays import saved
from testing.tf1_examples import (
    assert_same,
    positions_of,
    random_variables,
    read,
    shapes_of,
    small,
    v1,
    write,
)
from testing.untrained import compiled
from training import tf1_checkpoint as command
from training.config import Config
from training.train import train

STEP = 7

# The optimiser's state, and back to TF1.


def written(folder, architecture, **settings):
    """Writes a checkpoint of random numbers; gives its prefix and them."""
    values = random_variables(architecture, **settings)
    return write(folder / "model.ckpt-7", values), values


def ours_of(name, array, architecture):
    """A TF1 array in our order, element by element."""
    height, width, depth, _ = dataclasses.astuple(architecture.shape)
    rows, columns = positions_of(architecture)
    flattened = {
        # name: axis, (outermost, row, column sizes there)
        "capsule2/weights": (0, (2, rows, columns)),
        "recons/recons_3/weights": (1, (depth, height, width)),
        "recons/recons_3/biases": (0, (depth, height, width)),
        "fc1/weights": (0, (6, rows, columns)),
    }
    if name == "conv_capsule1/biases":
        return array[:, :, 0, 0]
    if name not in flattened:
        return array
    axis, (channels, rows, columns) = flattened[name]
    ours = np.full_like(array, np.nan)
    for channel in range(channels):
        for row in range(rows):
            for column in range(columns):
                there = (channel * rows + row) * columns + column
                here = (row * columns + column) * channels + channel
                if axis == 0:
                    ours[here] = array[there]
                else:
                    ours[:, here] = array[:, there]
    return ours


def assert_holds(model, values, architecture):
    """The model has the step, weights and Adam moments of TF1 variables."""
    assert int(model.optimizer.iterations) == STEP
    moments = model.optimizer.variables[1:]  # after the step: m, v, m, v...
    names = [
        variable.path.partition("/")[2]
        .replace("kernel", "weights")
        .replace("bias", "biases")
        .replace("biaseses", "biases")
        for variable in model.trainable_variables
    ]
    assert set(names) == set(shapes_of(architecture))
    for index, name in enumerate(names):
        for variable, suffix, label in (
            (model.trainable_variables[index], "", ""),
            (moments[2 * index], "/Adam", "momentum"),
            (moments[2 * index + 1], "/Adam_1", "velocity"),
        ):
            assert variable.path.endswith(label)
            expected = ours_of(name, values[name + suffix], architecture)
            np.testing.assert_array_equal(
                np.asarray(variable), expected, err_msg=name + suffix
            )


@pytest.mark.parametrize("model_name", ["capsule", "baseline"])
def test_tf1_to_ours_to_tf1_is_the_same_checkpoint(tmp_path, model_name):
    architecture = small(depth=3, model=model_name)
    prefix, values = written(tmp_path, architecture)

    ours = convert.import_tf1(prefix, tmp_path / "ours", architecture)

    model = compiled(architecture)
    checkpoints.open(ours).load(model, architecture)
    assert_holds(model, values, architecture)

    # What a process that was killed has left is removed.
    leftover = f".model.ckpt-7.{socket.gethostname()}.{2**22 + 1}.partial"
    (tmp_path / "tf1" / leftover).mkdir(parents=True)
    exported = convert.export_tf1(ours, tmp_path / "tf1")

    assert exported == tmp_path / "tf1" / "model.ckpt-7"
    assert_same(read(exported), values)
    # Nothing but the two checkpoints is left.
    assert os.listdir(tmp_path / "ours") == [ours.name]
    assert sorted(os.listdir(tmp_path / "tf1")) == [
        "model.ckpt-7.data-00000-of-00001",
        "model.ckpt-7.index",
    ]


def test_without_moments_only_weights_and_step_are_converted(tmp_path):
    architecture = small()
    prefix, values = written(tmp_path, architecture, slots=False)

    path = convert.import_tf1(prefix, tmp_path / "ours", architecture)

    ours = checkpoints.open(path)
    assert ours.step == STEP
    assert ours.architecture == architecture
    assert not ours.has_slots
    assert ours.training == {
        "dataset": None,
        "validate": None,
        "seed": None,
        "batch_size": None,
        "max_steps": None,
        "converted_from": prefix,
        "optimizer_state": False,
    }
    exported = convert.export_tf1(path, tmp_path / "tf1")
    assert_same(read(exported), values)


@pytest.mark.parametrize("slots", [True, False])
def test_powers_of_the_betas_that_are_not_the_steps(tmp_path, capsys, slots):
    architecture = small(remake=False)
    values = random_variables(architecture, slots=slots)
    values["beta1_power"] = np.float32(0.9**8)
    values["beta2_power"] = np.float32(0.5)
    prefix = write(tmp_path / "model.ckpt-7", values)
    model = compiled(architecture)
    Tf1Checkpoint(prefix).load(model, architecture)
    # Alone they are no optimiser's state.
    assert int(model.optimizer.iterations) == (STEP if slots else 0)
    assert slots == (
        "beta2_power is 0.5, but after global_step=7" in capsys.readouterr().out
    )


def test_tf1_saver_and_adam_go_on_from_an_export(tmp_path):
    """One update of TF1's own Adam equals one of ours, all state restored."""
    architecture = small(depth=2)
    prefix, _ = written(tmp_path, architecture)
    ours = convert.import_tf1(prefix, tmp_path / "ours", architecture)
    exported = convert.export_tf1(ours, tmp_path / "tf1")
    random = np.random.default_rng(3)
    gradients = {
        name: random.normal(0.0, 0.02, shape).astype("float32")
        for name, shape in shapes_of(architecture).items()
    }

    with tf.Graph().as_default(), v1.Session() as session:
        step = v1.get_variable(
            "global_step",
            [],
            initializer=v1.constant_initializer(0),
            trainable=False,
        )
        variables = {
            name: v1.get_variable(name, shape)
            for name, shape in shapes_of(architecture).items()
        }
        rate = v1.train.exponential_decay(0.001, step, 2000, 0.96)
        update = v1.train.AdamOptimizer(v1.maximum(rate, 1e-6)).apply_gradients(
            [(gradients[name], variables[name]) for name in variables], step
        )
        v1.train.Saver().restore(session, str(exported))
        session.run(update)
        updated = session.run({v.op.name: v for v in v1.global_variables()})
    assert updated["global_step"] == STEP + 1

    model = compiled(architecture)
    checkpoints.open(ours).load(model, architecture)
    model.optimizer.apply(
        [
            ours_of(tf1_name, gradients[tf1_name], architecture)
            for tf1_name in gradients
        ]
    )
    saved = save(tmp_path / "next", model, architecture, STEP + 1)
    after = read(saved)
    assert after.keys() == updated.keys()
    for name, value in updated.items():
        np.testing.assert_allclose(
            after[name], value, rtol=1e-5, atol=2e-8, err_msg=name
        )


def test_older_format_in_one_file(tmp_path):
    architecture = small()
    values = random_variables(architecture)
    prefix = write(
        tmp_path / "model.ckpt-7", values, version=v1.train.SaverDef.V1
    )
    assert pathlib.Path(prefix).is_file()
    model = compiled(architecture)
    checkpoints.open(prefix).load(model, architecture)
    assert_holds(model, values, architecture)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_whole_number_steps(tmp_path, dtype):
    values = {"global_step": np.array(600000, dtype)}
    prefix = write(tmp_path / "model.ckpt-600000", values)
    assert Tf1Checkpoint(prefix).step == 600000


# Errors.


def load_error(prefix, architecture):
    """The message of loading; the model must be left as it was."""
    model = compiled(architecture)
    before = [np.asarray(weight) for weight in model.weights]
    with pytest.raises(UserError) as error:
        Tf1Checkpoint(prefix).load(model, architecture)
    for old, weight in zip(before, model.weights, strict=True):
        np.testing.assert_array_equal(old, np.asarray(weight))
    assert int(model.optimizer.iterations) == 0
    assert str(prefix) in str(error.value)
    return str(error.value)


def test_every_missing_and_unexpected_variable_is_named(tmp_path):
    architecture = small()
    values = random_variables(architecture)
    for name in ("conv1/biases", "capsule2/weights/Adam_1", "beta1_power"):
        del values[name]
    values["extra/weights"] = np.zeros((2, 3), "float32")
    message = load_error(write(tmp_path / "m", values), architecture)
    lines = message.split("\n  ")[1:]
    assert lines == [
        "missing: beta1_power []",
        "missing: capsule2/weights/Adam_1 [12, 8, 48]",
        "missing: conv1/biases [16]",
        "unexpected: extra/weights [2, 3]",
    ]


def test_the_explanation_comes_first_and_moments_are_listed_too(tmp_path):
    there = small(num_prime_capsules=3, remake=False)
    prefix, _ = written(tmp_path, there)
    message = load_error(prefix, small(remake=False))
    assert message.split("\n  ")[1] == (
        "num_prime_capsules=3 is in the checkpoint, 2 was asked for"
    )
    for name in ("capsule2/weights", "capsule2/weights/Adam_1"):
        assert (
            f"wrong shape: {name} is [18, 8, 48], should be [12, 8, 48]"
        ) in message


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "conv1/biases",
            np.zeros(16, "float64"),
            "conv1/biases is float64, should be float32",
        ),
        *(
            ("global_step", np.float32(step), "global_step is")
            for step in (1.5, -1.0, np.nan, np.inf)
        ),
        (
            "global_step",
            np.zeros(2, "float32"),
            "has no single number global_step. Its variables: capsule2/biases,",
        ),
    ],
)
def test_numbers_of_another_kind(tmp_path, name, value, message):
    architecture = small(remake=False)
    values = random_variables(architecture, slots=False)
    values[name] = value
    prefix = write(tmp_path / "m", values)
    assert message in load_error(prefix, architecture)


def test_a_file_that_is_no_checkpoint(tmp_path):
    path = tmp_path / "model.ckpt-1"
    path.write_text("not a checkpoint")
    with pytest.raises(UserError, match=f"{path} cannot be read as a TF1"):
        checkpoints.open(path)


@pytest.mark.usefixtures("in_time")
@pytest.mark.parametrize(
    ("suffix", "message"),
    [
        (".index", "there is no checkpoint"),
        (".data-00000-of-00001", "-00001 is a pipe, a socket or a device"),
    ],
)
def test_a_pipe_in_the_place_of_a_file(tmp_path, suffix, message):
    path = write(tmp_path / "model.ckpt-1", {"global_step": np.float32(1)})
    name = pathlib.Path(f"{path}{suffix}")
    name.unlink()
    os.mkfifo(name)
    with pytest.raises(UserError, match=message):
        checkpoints.open(path)


def test_a_link_that_leads_nowhere_in_the_place_of_a_file(tmp_path):
    path = write(tmp_path / "model.ckpt-1", {"global_step": np.float32(1)})
    name = pathlib.Path(f"{path}.data-00000-of-00001")
    name.unlink()
    name.symlink_to(tmp_path / "nowhere")
    with pytest.raises(UserError, match=f"{path} cannot be read as a TF1"):
        checkpoints.open(path)
    pathlib.Path(f"{path}.index").unlink()
    with pytest.raises(UserError, match="00001 is there already"):
        tf1_checkpoint.free_path(tmp_path, 1)


def test_name_of_a_file_instead_of_the_prefix(tmp_path):
    prefix = write(tmp_path / "model.ckpt-7", {"global_step": np.float32(7)})
    for ending in (".index", ".data-00000-of-00001"):
        with pytest.raises(UserError, match=f"is named by {prefix}$"):
            checkpoints.open(f"{prefix}{ending}")


def test_damaged_files_are_refused(tmp_path):
    architecture = small(remake=False)
    prefix, _ = written(tmp_path, architecture)
    prefix = pathlib.Path(prefix)
    model = compiled(architecture)  # with an optimiser everything is read
    before = [np.asarray(weight) for weight in model.weights]
    for ending in (".index", ".data-00000-of-00001"):
        file = prefix.with_name(prefix.name + ending)
        whole = file.read_bytes()
        size = len(whole)
        flipped = bytearray(whole)
        flipped[size // 2] ^= 4
        cuts = [whole[:end] for end in (0, 1, size // 3, size - 1)]
        for damaged in (*cuts, bytes(flipped)):
            file.write_bytes(damaged)
            with pytest.raises(UserError, match=r"model\.ckpt-7"):
                Tf1Checkpoint(prefix).load(model, architecture)
        file.unlink()
        if ending == ".index":
            assert not is_tf1(prefix)
        else:
            with pytest.raises(UserError, match=r"model\.ckpt-7"):
                Tf1Checkpoint(prefix).load(model, architecture)
        file.write_bytes(whole)
    for old, weight in zip(before, model.weights, strict=True):
        np.testing.assert_array_equal(old, np.asarray(weight))


def test_conversion_never_overwrites(tmp_path):
    architecture = small(remake=False)
    prefix, values = written(tmp_path, architecture)
    with pytest.raises(UserError, match=r"model\.ckpt-7.* is there al"):
        convert.import_tf1(prefix, tmp_path, architecture)
    ours = convert.import_tf1(prefix, tmp_path / "ours", architecture)
    before = (ours / JSON_FILE).read_bytes()
    with pytest.raises(UserError, match=r"model\.ckpt-7.* is there al"):
        convert.import_tf1(prefix, tmp_path / "ours", architecture)
    for directory in (tmp_path, tmp_path / "ours"):
        with pytest.raises(UserError, match=r"model\.ckpt-7.* is there al"):
            convert.export_tf1(ours, directory)
    # Nor is anything left where nothing can be written.
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written: File exists"):
        convert.export_tf1(ours, tmp_path / "file")
    assert (tmp_path / "file").read_text() == ""
    assert (ours / JSON_FILE).read_bytes() == before
    assert_same(read(prefix), values)


# The command, and the jobs that take a checkpoint.


def test_command_converts_both_ways(tmp_path):
    def converted(source, folder, **given):
        network = command.Network(**given)
        return command.convert(str(source), tmp_path / folder, network, given)

    architecture = small(depth=3, leaky=True)
    prefix, values = written(tmp_path, architecture)
    hparams = "num_prime_capsules=2,leaky=true,conv_channels=16"
    size = {"height": 20, "width": 22, "depth": 3, "num_classes": 3}
    ours = converted(prefix, "ours", hparams_override=hparams, **size)
    assert ours == tmp_path / "ours" / "model.ckpt-7"
    assert checkpoints.open(ours).architecture == architecture
    exported = converted(ours, "tf1")
    assert exported == tmp_path / "tf1" / "model.ckpt-7"
    assert_same(read(exported), values)

    for source, given, message in (
        (ours, {"depth": 3}, "leave out --depth"),
        (tmp_path / "none", {}, "no checkpoint"),
        (prefix, {"hparams_override": hparams}, "depth=3 is in the"),
    ):
        with pytest.raises(UserError, match=message):
            converted(source, "x", **given)
    assert not (tmp_path / "x").exists()

    code, output, _ = run_command(ours, tmp_path / "again")
    assert output == f"{tmp_path / 'again' / 'model.ckpt-7'}\n"
    assert code == 0
    code, _, errors = run_command(ours, tmp_path / "x", "--depth=1")
    assert "describes itself: leave out --depth" in errors
    assert code == 1


def run_command(*arguments):
    return commands.run("-m", "training.tf1_checkpoint", *arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["here", "there", "--depth=0"], "--depth=0: 0 is not an integer"),
        (["here", "there"], "there is no checkpoint here"),
        (["here"], "name a checkpoint and a folder"),
    ],
)
def test_command_ends_with_a_message(arguments, message):
    code, output, errors = run_command(*arguments)
    assert code == 1
    assert message in output + errors
    assert "Traceback" not in errors


def digits_network():
    return small(height=28, width=28, classes=10, remake=False)


DIGITS = {
    "dataset": "digits",
    "eval_size": 20,
    "hparams_override": "num_prime_capsules=2,remake=false,conv_channels=16",
}


@pytest.mark.usefixtures("no_pictures")
def test_evaluation_of_one_and_of_an_ensemble(tmp_path, capsys):
    architecture = digits_network()
    for member in range(2):
        written(tmp_path / f"digits{member}", architecture, seed=member)
    pattern = str(tmp_path / "digits{}" / "model.ckpt-7")
    first = pattern.replace("{}", "0")
    # The same network, converted, may be a member beside them.
    convert.import_tf1(first, tmp_path / "digits2", architecture)
    config = Config(train=False, checkpoint=pattern, num_trials=3, **DIGITS)
    members, total = evaluate_ensemble(config)
    assert total.num_examples == 20
    assert members[2] == members[0]
    one = dataclasses.replace(
        config,
        checkpoint=first,
        num_trials=1,
        summary_dir=str(tmp_path / "summaries"),
    )
    assert evaluate_once(one) == members[0]
    assert list((tmp_path / "summaries" / "test").iterdir())
    with pytest.raises(
        UserError,
        match="missing checkpoints: .*digits3.*; found: .*digits0.*digits1",
    ):
        evaluate_ensemble(dataclasses.replace(config, num_trials=4))
    other = "num_prime_capsules=3,remake=false,conv_channels=16"
    with pytest.raises(UserError, match="num_prime_capsules=2 is in the"):
        evaluate_once(dataclasses.replace(one, hparams_override=other))


@pytest.mark.usefixtures("no_pictures")
def test_continuous_evaluation_passes_tf1_checkpoints_by(tmp_path, capsys):
    architecture = digits_network()
    directory = tmp_path / "train"
    write(directory / "model.ckpt-6", random_variables(architecture, step=6))
    prefix, _ = written(tmp_path, architecture)
    convert.import_tf1(prefix, directory, architecture)
    # A converted one does not tell whether a training has ended with it.
    evaluate_continuously(
        Config(
            train=False,
            summary_dir=str(tmp_path),
            eval_interval=0.0,
            eval_timeout=0.0,
            **DIGITS,
        )
    )
    output = capsys.readouterr().out
    assert "model.ckpt-7:" in output
    assert "model.ckpt-6:" not in output
    assert "No training runs in" in output


def training_config(directory, max_steps, **settings):
    return Config(
        summary_dir=str(directory),
        max_steps=max_steps,
        batch_size=4,
        save_step=1,
        **DIGITS,
        **settings,
    )


def test_training_goes_on_from_init_checkpoint(tmp_path, capsys):
    """From ours and from its export: as if it had never stopped."""
    train(training_config(tmp_path / "whole", 2))
    ours = tmp_path / "whole" / "train" / "model.ckpt-1"
    exported = convert.export_tf1(ours, tmp_path / "tf1")
    for name, source in (("a", ours), ("b", exported)):
        train(training_config(tmp_path / name, 2, init_checkpoint=str(source)))
        assert f"Starting from {source} at step 1" in capsys.readouterr().out
        path = tmp_path / name / "train" / "model.ckpt-2"
        assert_same(saved(path), saved(ours.with_name("model.ckpt-2")))
        assert checkpoints.open(path).training["seed"] == 0

    # It resumes from its own checkpoint, whatever --init_checkpoint says.
    train(training_config(tmp_path / "a", 3, init_checkpoint="nowhere"))
    assert "Resuming from" in capsys.readouterr().out

    with pytest.raises(UserError, match=r"at step 1.*ask for more steps"):
        train(training_config(tmp_path / "c", 1, init_checkpoint=str(ours)))
    with pytest.raises(UserError, match="no checkpoint"):
        train(training_config(tmp_path / "c", 1, init_checkpoint="nowhere"))
    assert not checkpoints.find_all(tmp_path / "c" / "train")


def test_without_moments_training_starts_at_step_0(tmp_path, capsys):
    architecture = digits_network()
    prefix, values = written(tmp_path, architecture, slots=False)
    converted = convert.import_tf1(
        prefix, tmp_path / "converted" / "train", architecture
    )
    trained = []
    for name, source in (("a", prefix), ("b", converted)):
        train(training_config(tmp_path / name, 2, init_checkpoint=str(source)))
        assert f"Starting from {source} at step 0" in capsys.readouterr().out
        trained.append(saved(tmp_path / name / "train" / "model.ckpt-2"))
    assert_same(*trained)
    # Two steps of Adam move a weight by about 0.002 from where it was.
    biases = trained[0]["capsule2/vars/1"]
    moved = np.abs(biases - values["capsule2/biases"])
    assert 0.0 < moved.max() < 0.005

    with pytest.raises(UserError, match="by --init_checkpoint"):
        train(training_config(tmp_path / "converted", 9))


def test_a_converted_checkpoint_is_evaluated_and_resumed(tmp_path, capsys):
    architecture = digits_network()
    prefix, _ = written(tmp_path, architecture)
    directory = tmp_path / "run" / "train"
    path = convert.import_tf1(prefix, directory, architecture)
    evaluated = Config(train=False, checkpoint=str(path), eval_size=20)
    for either in (path, prefix):
        with pytest.raises(UserError, match="does not tell which data"):
            evaluate_once(
                dataclasses.replace(evaluated, checkpoint=str(either))
            )
    evaluate_once(dataclasses.replace(evaluated, dataset="digits"))
    train(training_config(tmp_path / "run", 8))
    output = capsys.readouterr().out
    assert f"Resuming from {path}" in output
    assert "Note:" not in output  # nothing is known to differ
    assert checkpoints.open(directory / "model.ckpt-8").training["seed"] == 0
