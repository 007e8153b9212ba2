"""Trains and evaluates capsule networks.

  python experiment.py --summary_dir=/tmp/digits --max_steps=300
  python experiment.py --summary_dir=/tmp/digits --train=false

README.md shows the reference's commands; --help lists the flags.
"""

from common import startup  # noqa: F401 - must be the first

# isort: split
import math
import shlex
import signal
import sys

import keras
from absl import app, flags

from common import shared_flags
from common.errors import Interrupted, UserError
from devices import choice as devices
from devices import cluster, parallel
from evaluation.jobs import (
    evaluate_continuously,
    evaluate_ensemble,
    evaluate_once,
)
from training.config import Config
from training.train import train

shared_flags.define()
flags.DEFINE_bool(
    "allow_nonfinite",
    Config.allow_nonfinite,
    "Whether training goes on when the loss or a weight becomes infinite "
    "or NaN.",
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
flags.DEFINE_string(
    "coordinator_address",
    Config.coordinator_address,
    "With --num_processes: HOST:PORT of the first process, which all can "
    f"reach. Default: the environment variable {cluster.ADDRESS_VARIABLE}.",
)
flags.DEFINE_bool(
    "deterministic",
    Config.deterministic,
    "Whether GPUs, too, repeat a run bit for bit; slower. CPUs always do.",
)
flags.DEFINE_string(
    "device",
    Config.device,
    "Where to compute: cpu, gpu, or gpu:1 for the second GPU; with --num_gpus "
    "the first of them, and of cpu as many logical devices. Default: the first "
    "GPU if there is one, else the CPU.",
)
flags.register_validator(
    "device",
    lambda name: name is None or devices.DEVICE_PATTERN.fullmatch(name),
    "should be cpu, gpu or gpu:NUMBER",
)
flags.DEFINE_enum(
    "dtype_policy",
    Config.dtype_policy,
    ["float32", "mixed_bfloat16", "mixed_float16"],
    "Precision of the layers' arithmetic. Weights, lengths, softmax and losses "
    "are always float32.",
)
flags.DEFINE_float(
    "eval_interval",
    Config.eval_interval,
    "Seconds between looks for a new checkpoint.",
    lower_bound=0.0,
)
flags.DEFINE_float(
    "eval_timeout",
    Config.eval_timeout,
    "Seconds after which continuous evaluation ends if no new checkpoint "
    "comes.",
    lower_bound=0.0,
)
flags.DEFINE_integer(
    "gpu_memory_limit",
    Config.gpu_memory_limit,
    "Megabytes of each GPU to use at most, so that two jobs can share one. "
    "Default: as much as is needed.",
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
flags.DEFINE_integer(
    "num_gpus",
    Config.num_gpus,
    "GPUs of this machine to use together.",
    lower_bound=1,
)
flags.DEFINE_integer(
    "num_processes",
    Config.num_processes,
    "Processes that do the job together, on one or more machines, each with "
    "--num_gpus; needs KERAS_BACKEND=jax. Default: the environment variable "
    f"{cluster.NUMBER_VARIABLE}, else 1.",
    lower_bound=1,
)
flags.DEFINE_integer(
    "num_trials",
    Config.num_trials,
    "With --train=false: how many checkpoints form an ensemble; the numbers "
    "from 0 take the place of {} in --checkpoint.",
    lower_bound=1,
)
flags.DEFINE_integer(
    "process_index",
    Config.process_index,
    "With --num_processes: which of them this is, from 0. Default: the "
    f"environment variable {cluster.INDEX_VARIABLE}.",
    lower_bound=0,
)
flags.DEFINE_integer(
    "save_step",
    Config.save_step,
    "Steps from one checkpoint to the next; the last step is always saved.",
    lower_bound=1,
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
    with (
        devices.computing_on(
            config.device, config.num_gpus, config.gpu_memory_limit
        ),
        cluster.joined(
            "experiment.py",
            config.coordinator_address,
            config.num_processes,
            config.process_index,
        ),
    ):
        if config.deterministic:
            devices.make_deterministic()
        keras.config.set_dtype_policy(config.dtype_policy)
        on = parallel.make(
            config.num_gpus, config.device, config.gpu_memory_limit
        )
        _run(config, on)


def _run(config, on):
    if config.train:
        if config.num_trials > 1:
            raise UserError("--num_trials is for evaluation: add --train=false")
        if config.checkpoint is not None:
            raise UserError(
                "--checkpoint is for evaluation: add --train=false. Training "
                "resumes by itself from the newest checkpoint in "
                "<summary_dir>/train, or starts from --init_checkpoint."
            )
        train(config, on)
    elif config.init_checkpoint is not None:
        raise UserError(
            "--init_checkpoint is for training; to evaluate a checkpoint name "
            "it by --checkpoint"
        )
    elif config.num_trials > 1:
        if config.checkpoint is None:
            raise UserError("--num_trials needs --checkpoint with {} in it")
        evaluate_ensemble(config, on)
    elif config.checkpoint is not None:
        evaluate_once(config, on)
    else:
        evaluate_continuously(config, on)


def main(argv):
    """Runs the job of the flags; a user's error is one line and exit 1."""
    if len(argv) > 1:
        raise app.UsageError(f"not a flag: {' '.join(argv[1:])}")
    try:
        run(shared_flags.config_of_flags())
    except UserError as error:
        sys.exit(f"experiment.py: {error}")
    except Interrupted as stop:
        print(f"{stop}\nGo on by: {shlex.join(['python', *sys.argv])}")
        sys.exit(128 + stop.signal_number)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)


if __name__ == "__main__":
    app.run(main)
