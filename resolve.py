"""Gives every setting its value: that of a flag, of a checkpoint or a default.

No later code lets a setting depend on another one.
"""

import dataclasses
import re

from common.errors import UserError
from input_data.registry import BUNDLED, fill, with_data_defaults

# Taken from a checkpoint of the same data set unless given as flags, as are the
# model, the number of targets and the hyper-parameters in evaluations.
INHERITED = ("color", "dataset", "distort", "image_size", "pad", "resize")
INHERITED += ("viewpoints",)
# Stored in a checkpoint.
RECORDED = *INHERITED, "augment", "batch_size", "class_weight", "crop_area"
RECORDED += "dtype_policy", "flip", "max_steps", "seed", "shift", "validate"


def check_job(config):
    """Raises UserError for flags of experiment.py that exclude each other."""
    if config.train and (config.checkpoint or config.num_trials > 1):
        raise UserError(
            "--checkpoint and --num_trials are for evaluation: add "
            "--train=false. A training starts from --init_checkpoint"
        )
    if config.epochs and config.max_steps != type(config).max_steps:
        raise UserError("give --epochs or --max_steps, not both")
    if config.patience and not (config.validate and config.eval_every):
        raise UserError("--patience needs --validate and --eval_every")
    if not config.summary_dir and (config.train or config.checkpoint is None):
        raise UserError(
            "--summary_dir is required, or --checkpoint for an evaluation"
        )


def with_steps(config, num_images):
    """A `Config` with `max_steps` in place of `epochs`."""
    if config.epochs is None:
        return config
    steps = -(-config.epochs * num_images // config.batch_size)
    return dataclasses.replace(config, epochs=None, max_steps=steps)


def inherit(config, checkpoint):
    """A `Config` whose `INHERITED` settings, if None, are a `Checkpoint`'s.

    A checkpoint for another data set supplies no settings.
    """
    recorded = checkpoint.run_settings
    dataset = recorded.get("dataset")
    # MODULE:FUNCTION, or tfds:NAME:CONFIG, where CONFIG is no version number:
    # both import code.
    code = r"(?!tfds:).*:|tfds:[^:/]+:(?![0-9.*]+$)"
    if config.dataset is None and re.match(code, dataset or ""):
        raise UserError(
            f"the checkpoint's data set {dataset} may run code: add "
            f"--dataset={dataset} if you trust it"
        )
    has_other_files = dataset == BUNDLED and config.data_dir is not None
    if config.dataset not in (None, dataset) or has_other_files:
        return config
    return fill(config, **{name: recorded.get(name) for name in INHERITED})


def with_defaults(config, model="capsule", num_targets=1):
    """A `Config` in which every setting of data and model has its value.

    Only `image_size` (all have one), `resize` (it does not apply) and
    `viewpoints` (all) can still be None. Raises UserError for settings that do
    not apply to the data set.
    """
    config = fill(config, model=model, num_targets=num_targets)
    return with_data_defaults(config)


def for_evaluation(config, checkpoint):
    """The `Config` for evaluating a `Checkpoint`, also with its model."""
    config = inherit(config, checkpoint)
    if config.dataset is None and config.data_dir is None:
        raise UserError(
            f"{checkpoint.path} does not record its data set; add --dataset"
        )
    if network := checkpoint.architecture:
        return with_defaults(config, network.model, network.num_targets)
    return with_defaults(config)  # a TF1 checkpoint


def recorded(config):
    """The settings before `with_defaults`, which checkpoints store.

    An evaluation of pairs, for example, has other defaults than the training.
    """
    return {
        **{name: getattr(config, name) for name in RECORDED},
        "dataset": with_defaults(config).dataset,
        # TFDS orders the images of some sets differently from their files.
        "of_files": config.data_dir is not None,
    }
