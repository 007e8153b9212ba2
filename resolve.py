"""Gives every setting its value: that of a flag, of a checkpoint or a default.

No later code lets a setting depend on another one.
"""

import dataclasses
import re

from common.errors import UserError
from input_data.registry import BUNDLED, find_data_set, shards_of

# Taken from a checkpoint of the same data set unless given as flags, as are the
# model, the number of targets and the hyper-parameters in evaluations.
INHERITED = ("color", "dataset", "distort", "image_size", "pad", "resize")
INHERITED += ("viewpoints",)
# Stored in a checkpoint.
RECORDED = (
    *INHERITED,
    *("augment", "batch_size", "crop_area", "dtype_policy", "flip"),
    *("max_steps", "seed", "shift", "validate"),
)
# Section 6 of the paper: digits on 36x36, shifted by up to 4 pixels.
PAIR_PAD = PAIR_SHIFT = 4


def check_job(config):
    """Raises UserError for flags of experiment.py that exclude each other."""
    if config.train and (config.checkpoint or config.num_trials > 1):
        raise UserError(
            "--checkpoint and --num_trials are for evaluation: add "
            "--train=false. A training starts from --init_checkpoint"
        )
    if not config.summary_dir and (config.train or config.checkpoint is None):
        raise UserError(
            "--summary_dir is required, or --checkpoint for an evaluation"
        )


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
    return _fill(config, **{name: recorded.get(name) for name in INHERITED})


def with_defaults(config, model="capsule", num_targets=1):
    """A `Config` in which every setting of data and model has its value.

    Only `image_size` (all have one), `resize` (it does not apply) and
    `viewpoints` (all) can still be None. Raises UserError for settings that do
    not apply to the data set.
    """
    # The reference's commands have no --dataset for MNIST.
    dataset = BUNDLED if config.data_dir is None else "mnist"
    config = _fill(
        config, dataset=dataset, model=model, num_targets=num_targets
    )
    data_set = find_data_set(config.dataset)
    shards = shards_of(config.data_dir)
    _check_data(config, data_set, shards)
    pad, shift = 0, 0 if config.augment else data_set.shift
    if shards:  # of images that are shifted and padded
        shift = 0
    elif config.num_targets == 2:
        pad = PAIR_PAD if config.pairs == "overlap" else 0
        shift = PAIR_SHIFT
    resize = "pad" if data_set.resizes else None
    defaults = {"color": False, "distort": False, "resize": resize}
    return _fill(config, pad=pad, shift=shift, **defaults)


def for_evaluation(config, checkpoint):
    """The `Config` for evaluating a `Checkpoint`, also with its model."""
    config = inherit(config, checkpoint)
    if config.dataset is None and config.data_dir is None:
        raise UserError(
            f"{checkpoint.path} does not record its data set; add --dataset"
        )
    if checkpoint.architecture is None:  # a TF1 checkpoint
        return with_defaults(config)
    network = checkpoint.architecture
    return with_defaults(config, network.model, network.num_targets)


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


def _fill(config, **defaults):
    missing = {k: v for k, v in defaults.items() if getattr(config, k) is None}
    return dataclasses.replace(config, **missing)


def _check_data(config, data_set, shards):
    """Raises UserError for settings that do not apply to the data set."""
    photographs = data_set.photograph_size is not None
    name, two_targets = config.dataset, config.num_targets == 2
    if config.pairs != "overlap":
        if not two_targets or config.train or config.crops > 1:
            raise UserError(
                f"--pairs={config.pairs} needs --num_targets=2 and "
                "--train=false, and does not go with --crops"
            )
        two_targets = False  # as single images are read
    refused = {
        "data_dir": config.data_dir and name == BUNDLED,
        "num_targets": two_targets and not data_set.two_targets,
        "image_size": config.image_size and not data_set.resizes,
        "resize": config.resize and not data_set.resizes,
        "color": config.color and not data_set.colors,
        "crops": config.crops > 1 and not photographs,
        "viewpoints": config.viewpoints and name != "norb",
        "shift": (photographs or shards) and config.shift is not None,
        "pad": config.pad and photographs,
        "distort": config.distort and (photographs or two_targets),
        "augment": config.augment and (photographs or two_targets),
        "crop_area": config.crop_area < 1 and (photographs or two_targets),
        "flip": config.flip and (photographs or two_targets),
    }
    for flag, is_refused in refused.items():
        if is_refused:
            raise UserError(
                f"--{flag}={getattr(config, flag)} does not apply to "
                f"--dataset={name} with --num_targets={config.num_targets}"
            )
