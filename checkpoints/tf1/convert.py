"""TF1 checkpoints of the reference into ours, and ours into TF1's."""

import checkpoints
from checkpoints.tf1 import tf1_checkpoint
from models.optimizer import compile_model


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
