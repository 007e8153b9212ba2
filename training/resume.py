"""Continues a training: that of the same folder, or another one."""

import dataclasses

from common.errors import UserError
from models.optimizer import compile_model
from training.formats import open_checkpoint


def resume(run, latest):
    """Loads the newest checkpoint; notes settings that differ from it."""
    config, spec = run.config, run.pipeline.spec
    dataset = latest.run_settings.get("dataset") or config.dataset
    saved, mine = latest.architecture, run.architecture
    reason = None
    if dataset != config.dataset:
        reason = "it is of another --dataset"
    elif saved.model != mine.model:
        reason = "it is of another --model"
    elif saved.num_targets != mine.num_targets:
        reason = "it is of another --num_targets"
    elif not latest.has_optimizer_state:
        reason = "it has no optimizer state"
    elif (saved.hparams.ema > 0) != (mine.hparams.ema > 0):
        reason = "only one has `ema`"
    elif not latest.can_continue(run.model):
        reason = "other weights are trained now"
    if reason:
        raise UserError(
            f"{latest.path} cannot be resumed: {reason}; choose another "
            "--summary_dir, and --init_checkpoint to start from its weights"
        )
    latest.check_same_data(config, spec)
    if latest.step > config.max_steps:
        raise UserError(
            f"{latest.path} is beyond --max_steps={config.max_steps}"
        )
    latest.load(run.model, mine)
    print(f"Resuming from {latest.path}")
    run.step, run.latest = latest.step, latest
    run.seconds = latest.run_settings.get("seconds", run.seconds)
    run.id = latest.run_settings.get("id", run.id)
    before = dataclasses.asdict(saved.hparams) | latest.run_settings
    now = dataclasses.asdict(mine.hparams)
    now |= run.checkpoint(run.step, run.seconds).run_settings
    if now["schedule"] == "exponential":  # it does not depend on max_steps
        before.pop("max_steps", None)
    for name, value in now.items():
        if before.get(name, value) != value:
            print(f"Note: {name} was {before[name]} and is now {value}")


def initialize(run):
    """Compiles the model and loads `init_checkpoint`, also its step.

    Without the optimizer's state of the weights trained now, the training
    starts at step 0, as Adam corrects its moments for the number of steps.
    """
    config, model = run.config, run.model
    source = open_checkpoint(config.init_checkpoint, config.model)
    source.check_same_data(config, run.pipeline.spec)
    if config.init_weights_only or not source.can_continue(model):
        source.load(model, run.architecture)
        compile_model(model, config.max_steps)
    else:
        compile_model(model, config.max_steps)
        source.load(model, run.architecture)
        run.step = source.step
    model.optimizer.iterations.assign(run.step)
    if run.step >= config.max_steps:
        raise UserError(
            f"{source.path} starts at step {run.step}; give a larger "
            "--max_steps or --init_weights_only"
        )
    print(f"Starting from {source.path} at step {run.step}")
