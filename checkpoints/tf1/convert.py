"""Converts TF1 checkpoints of the reference into ours, and ours into TF1's.

SRC says which; the flags describe the network of a TF1 checkpoint, which
does not describe itself:

  python -m training.tf1_checkpoint DIR/model.ckpt-600000 OUT \
      --hparams_override=num_prime_capsules=64,padding=SAME,remake=false \
      --height=24 --width=24 --depth=3
  python -m training.tf1_checkpoint OUT/model.ckpt-600000 BACK
"""

import argparse
import dataclasses
import sys

import checkpoints
from checkpoints.architecture import Architecture
from checkpoints.tf1 import tf1_checkpoint
from common.ending import told
from common.errors import UserError
from common.fields import parse
from common.flags import as_message
from common.text import shortened
from input_data.features import ImageShape
from models.optimizer import compile_model
from models.registry import MODELS


def import_tf1(source, directory, architecture):
    """Converts a TF1 checkpoint into one of ours.

    What a TF1 checkpoint does not tell, the data set and settings it was
    trained with, is None in the new one. If it has no Adam moments,
    `optimizer_state` is false there: the moments are zeros, and a training
    may start from the weights but not resume.

    Args:
      source: path, the prefix of the TF1 checkpoint's files.
      directory: path, where `model.ckpt-<step>` is made.
      architecture: `Architecture`.

    Returns:
      The path of the new checkpoint.

    Raises:
      UserError: if the source does not fit, or the new one exists or cannot
        be written.
    """
    tf1 = tf1_checkpoint.Tf1Checkpoint(source)
    tf1_checkpoint.free_path(directory, tf1.step)
    tf1.require_same_network(architecture)  # before it is made
    model = _compiled(architecture)
    tf1.load(model, architecture)
    # Ours must agree with itself on the step, moments or not.
    model.optimizer.iterations.assign(tf1.step)
    unknown = ("dataset", "validate", "seed", "batch_size", "max_steps")
    training = {
        **dict.fromkeys(unknown),
        "converted_from": str(source),
        "optimizer_state": tf1.has_slots,
    }
    metadata = checkpoints.Metadata(tf1.step, architecture, training)
    return checkpoints.save(directory, model, metadata)


def export_tf1(source, directory):
    """Converts a checkpoint of ours into a TF1 checkpoint.

    Args:
      source: path of a checkpoint directory.
      directory: path, where the files `model.ckpt-<step>.*` are made.

    Returns:
      The path that names the new checkpoint.

    Raises:
      UserError: as `save` does, and if the source cannot be read.
    """
    ours = checkpoints.open(source)
    # Refuses models that TF1 does not have before any work is done.
    ours.architecture.tf1_variables()
    model = _compiled(ours.architecture)
    ours.load(model, ours.architecture)
    return tf1_checkpoint.save(
        directory,
        model,
        ours.architecture,
        ours.step,
        with_slots=ours.has_slots,
    )


def _compiled(architecture):
    model = architecture.build()
    # Any number of steps will do: there is none to train.
    compile_model(model, max_steps=1)
    return model


# The settings that a TF1 checkpoint does not tell, with MNIST's as defaults.
_NETWORK_FLAGS = {
    "model": "capsule",
    "hparams_override": "",
    "height": 28,
    "width": 28,
    "depth": 1,
    "num_classes": 10,
    "num_targets": 1,
}
_LARGEST = 10**5
_CHOICES = {"model": sorted(MODELS), "num_targets": (1, 2)}


def _count(text):
    try:
        number = parse(int, text)
    except ValueError:
        number = 0
    if not 1 <= number <= _LARGEST:
        raise argparse.ArgumentTypeError(
            f"{shortened(text)} is not a number from 1 to {_LARGEST}"
        )
    return number


def _parse(arguments):
    parser = argparse.ArgumentParser(
        prog="python -m training.tf1_checkpoint",
        description="Converts a TF1 checkpoint of the reference into one of "
        "this project, or back.",
        epilog="The flags describe the network of a TF1 SRC; one of ours "
        "describes itself.",
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument("SRC", help="the checkpoint to convert")
    parser.add_argument("DST", help="folder to make model.ckpt-<step> in")
    for name, default in _NETWORK_FLAGS.items():
        parser.add_argument(
            f"--{name}",
            type=_count if isinstance(default, int) else str,
            choices=_CHOICES.get(name),
            help=f"default: {default!r}",
        )

    def explain(message):
        sys.exit(f"{as_message(message)}\nPass --help to see all flags.")

    parser.error = explain
    return vars(parser.parse_args(arguments))


def _convert(asked):
    source, directory = asked.pop("SRC"), asked.pop("DST")
    if not tf1_checkpoint.is_tf1(source):
        if asked and checkpoints.exists(source):
            flags = ", ".join(f"--{name}" for name in asked)
            raise UserError(f"{source} describes itself: leave out {flags}")
        return export_tf1(source, directory)
    values = {**_NETWORK_FLAGS, **asked}
    shape = [values[f.name] for f in dataclasses.fields(ImageShape)]
    architecture = Architecture.described(
        values["model"],
        ImageShape(*shape),
        values["num_targets"],
        values["hparams_override"],
    )
    return import_tf1(source, directory, architecture)


def main(arguments=None):
    """Runs the conversion; a user's error is one message and exit 1."""
    with told("tf1_checkpoint"):
        print(_convert(_parse(arguments)))
