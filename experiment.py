"""Trains and evaluates capsule networks.

  python experiment.py --summary_dir=/tmp/digits --max_steps=300
  python experiment.py --summary_dir=/tmp/digits --train=false

README.md shows the reference's commands; --help lists the flags.
"""

import dataclasses
import math
import os
import shlex
import signal
import sys

# TensorFlow's start-up notes would bury the first lines of output.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

try:
    import keras  # noqa: F401 - loads the backend, which may not be there
except (ImportError, ValueError) as error:
    sys.exit(
        f"experiment.py: KERAS_BACKEND={os.environ.get('KERAS_BACKEND')} "
        f"cannot be used: {error}"
    )

from absl import app, flags

from errors import Interrupted, UserError
from input_data.registry import is_valid_name, valid_names
from models.registry import MODELS
from training.config import Config
from training.devices import limit_memory_growth, make_deterministic
from training.evaluation import (
    evaluate_continuously,
    evaluate_ensemble,
    evaluate_once,
)
from training.train import train

flags.DEFINE_bool(
    "allow_nonfinite",
    Config.allow_nonfinite,
    "Whether training goes on when the loss becomes infinite or NaN.",
)
flags.DEFINE_integer(
    "batch_size",
    Config.batch_size,
    "Images in a training batch, split over the GPUs.",
    lower_bound=1,
)
flags.DEFINE_string(
    "checkpoint",
    Config.checkpoint,
    "With --train=false: the checkpoint to evaluate once. {} in it stands for "
    "the members of an ensemble, see --num_trials. A TF1 checkpoint of the "
    "reference is named by the prefix of its files, such as "
    "DIR/model.ckpt-1; --model, --hparams_override and the data set must "
    "describe its network.",
)
flags.DEFINE_bool(
    "color",
    Config.color,
    "With --dataset=images: whether images keep their colours; else they "
    "become grey.",
)
flags.DEFINE_string(
    "data_dir",
    Config.data_dir,
    "Folder with the files of the data set; or PREFIX.tfrecords@10, record "
    "files of pairs in 10 shards, for two targets.",
)
flags.DEFINE_string(
    "dataset",
    Config.dataset,
    f"Data set: {valid_names()}, where tfds:NAME is an image classification "
    "set of TensorFlow Datasets and images is a folder with one sub-folder "
    "for each class. Default: mnist if --data_dir is given, else the embedded "
    "digits.",
)
flags.register_validator(
    "dataset",
    lambda name: name is None or is_valid_name(name),
    f"should be one of {valid_names()}",
)
flags.DEFINE_bool(
    "deterministic",
    Config.deterministic,
    "Whether GPUs, too, repeat a run bit for bit; slower. CPUs always do.",
)
flags.DEFINE_bool(
    "distort",
    Config.distort,
    "Whether to crop digits by 4 pixels: in training at random, and turned by "
    "up to 15 degrees; else from the middle.",
)
flags.DEFINE_float(
    "eval_interval",
    Config.eval_interval,
    "Seconds between looks for a new checkpoint.",
    lower_bound=0.0,
)
flags.DEFINE_integer(
    "eval_size",
    Config.eval_size,
    "Examples to evaluate: at most the images or records there are; pairs "
    "that are made on the fly may be any number.",
    lower_bound=1,
)
flags.DEFINE_float(
    "eval_timeout",
    Config.eval_timeout,
    "Seconds after which continuous evaluation ends if no new checkpoint "
    "comes.",
    lower_bound=0.0,
)
flags.DEFINE_string(
    "hparams_override",
    Config.hparams_override,
    "Hyper-parameters as name=value,name=value. preset=svhn stands for the "
    "paper's smaller network for SVHN; values given beside it go before its "
    "own.",
)
flags.DEFINE_integer(
    "image_size",
    Config.image_size,
    "With --dataset=images and tfds:NAME: height and width, in pixels, to "
    "which images are resized. Default: as they are, if all have one size.",
    lower_bound=1,
)
flags.DEFINE_string(
    "init_checkpoint",
    Config.init_checkpoint,
    "Checkpoint, also a TF1 one, to start a training from that has none of "
    "its own yet: weights, step and Adam's moments; from one without moments "
    "only the weights, at step 0.",
)
flags.DEFINE_integer(
    "keep",
    Config.keep,
    "How many of the newest checkpoints to keep; 0 keeps all.",
    lower_bound=0,
)
flags.DEFINE_integer(
    "max_steps",
    Config.max_steps,
    "Training steps in all, those before a resume included.",
    lower_bound=1,
)
flags.DEFINE_enum(
    "model",
    Config.model,
    sorted(MODELS),
    "Model. Default: capsule, in evaluation the checkpoint's.",
)
flags.DEFINE_integer(
    "num_gpus", Config.num_gpus, "GPUs to train on.", lower_bound=1
)
flags.DEFINE_integer(
    "num_targets",
    Config.num_targets,
    "Objects in each image, 1 or 2. Default: 1, in evaluation the "
    "checkpoint's.",
    lower_bound=1,
    upper_bound=2,
)
flags.DEFINE_integer(
    "num_trials",
    Config.num_trials,
    "With --train=false: how many checkpoints form an ensemble; the numbers "
    "from 0 take the place of {} in --checkpoint.",
    lower_bound=1,
)
flags.DEFINE_integer(
    "pad",
    Config.pad,
    "Black pixels to add on each side of a digit. Default: 0, with two "
    "targets 4.",
    lower_bound=0,
)
flags.DEFINE_integer(
    "save_step",
    Config.save_step,
    "Steps from one checkpoint to the next; the last step is always saved.",
    lower_bound=1,
)
flags.DEFINE_integer(
    "seed",
    Config.seed,
    "Seed of the initial weights, the batches and the test pairs.",
    lower_bound=0,
    upper_bound=2**32 - 1,
)
flags.DEFINE_integer(
    "shift",
    Config.shift,
    "Pixels by which a training image moves at most, along each axis; of "
    "record files the shift in their name. Default: 2 for digits and mnist, "
    "with two targets 4, else 0.",
    lower_bound=0,
)
flags.DEFINE_string(
    "summary_dir",
    Config.summary_dir,
    "Folder of the experiment: checkpoints and TensorBoard files of training "
    "go to its folder train, those of evaluation to test.",
)
flags.DEFINE_integer(
    "summary_step",
    Config.summary_step,
    "Steps from one point of the training curves to the next, each a mean.",
    lower_bound=1,
)
flags.DEFINE_bool("train", Config.train, "Whether to train; else to evaluate.")
flags.DEFINE_bool(
    "validate",
    Config.validate,
    "Whether training leaves out a part of the training images, and "
    "evaluation uses exactly that part.",
)

flags.register_validator(
    "eval_interval", math.isfinite, "must be a finite number"
)
flags.register_validator(
    "eval_timeout", lambda value: not math.isnan(value), "must be a number"
)


def run(config):
    """Does what the config asks for.

    Args:
      config: `Config`.

    Raises:
      UserError: for settings, data or checkpoints that do not work.
      Interrupted: if a training was stopped by a signal.
    """
    limit_memory_growth()
    if config.deterministic:
        make_deterministic()
    if config.train:
        if config.num_trials > 1:
            raise UserError("--num_trials is for evaluation: add --train=false")
        if config.checkpoint is not None:
            raise UserError(
                "--checkpoint is for evaluation: add --train=false. Training "
                "resumes by itself from the newest checkpoint in "
                "<summary_dir>/train, or starts from --init_checkpoint."
            )
        train(config)
    elif config.init_checkpoint is not None:
        raise UserError(
            "--init_checkpoint is for training; to evaluate a checkpoint name "
            "it by --checkpoint"
        )
    elif config.num_trials > 1:
        if config.checkpoint is None:
            raise UserError("--num_trials needs --checkpoint with {} in it")
        evaluate_ensemble(config)
    elif config.checkpoint is not None:
        evaluate_once(config)
    else:
        evaluate_continuously(config)


def main(argv):
    """Runs the job of the flags; a user's error is one line and exit 1."""
    if len(argv) > 1:
        raise app.UsageError(f"not a flag: {' '.join(argv[1:])}")
    names = [field.name for field in dataclasses.fields(Config)]
    config = Config(**{name: flags.FLAGS[name].value for name in names})
    try:
        run(config)
    except UserError as error:
        sys.exit(f"experiment.py: {error}")
    except Interrupted as stop:
        print(f"{stop}\nGo on by: {shlex.join(['python', *sys.argv])}")
        sys.exit(128 + stop.signal_number)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)


if __name__ == "__main__":
    app.run(main)
