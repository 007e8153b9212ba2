"""Evaluation: of one checkpoint, of each new one, and of an ensemble."""

import pathlib
import time

import checkpoints
from common.errors import UserError
from devices.parallel import OneDevice
from evaluation import learning_curve, pictures
from evaluation.counts import score
from evaluation.evaluator import Evaluator
from training.summaries import SummaryWriter, evaluation_scalars

_ONE_DEVICE = OneDevice()


def evaluate_once(config, parallel=_ONE_DEVICE):
    """Evaluates the checkpoint that `config.checkpoint` names.

    Args:
      config: `Config`.
      parallel: `parallel.OneDevice`, the default, or one of its subclasses:
        what to compute on.

    Returns:
      `Score`.
    """
    if "{}" in config.checkpoint:
        raise UserError(
            f"--checkpoint={config.checkpoint} names an ensemble by {{}}: say "
            "of how many checkpoints by --num_trials"
        )
    # First, lest they fail after the work.
    checkpoint = checkpoints.open(config.checkpoint)
    writer = None
    if config.summary_dir and parallel.is_first:
        writer = _test_writer(config)
    predictions = Evaluator(config, parallel).predict(checkpoint)
    _print(predictions.score, config)
    if writer is not None:
        _summarise(config, writer, predictions, checkpoint)
    return predictions.score


def _print(result, config):
    print(result, flush=True)
    if config.pairs != "overlap":
        print(result.measures, flush=True)


def evaluate_ensemble(config, parallel=_ONE_DEVICE):
    """Evaluates checkpoints, and the sum of their logits.

    `{}` in `config.checkpoint` stands for 0 to `num_trials` - 1.

    Returns:
      Pair of the list of each member's `Score` and the ensemble's `Score`.

    Raises:
      UserError: if a checkpoint is missing: it lists those that were found.
    """
    paths = _ensemble_paths(config.checkpoint, config.num_trials)
    evaluator = Evaluator(config, parallel)
    members, total = [], 0.0
    first_targets = None
    for path in paths:
        predictions = evaluator.predict(checkpoints.open(path))
        num_targets = predictions.pipeline.spec.num_targets
        first_targets = first_targets or num_targets
        if num_targets != first_targets:
            raise UserError(
                f"{path} is for {num_targets} targets but {paths[0]} for "
                f"{first_targets}: they cannot form an ensemble unless "
                "--num_targets says which images to take"
            )
        members.append(predictions.score)
        print(f"{path}: ", end="")
        _print(members[-1], config)
        total = total + predictions.logits
    result = score(predictions.labels, total, num_targets)
    print(f"Ensemble of {len(paths)}:")
    print(result)
    return members, result


def _ensemble_paths(pattern, num_trials):
    if "{}" not in pattern:
        raise UserError(
            f"--num_trials={num_trials} needs {{}} in --checkpoint, where the "
            f"numbers 0 to {num_trials - 1} go; it is {pattern}"
        )
    paths = [
        pathlib.Path(pattern.replace("{}", str(trial)))
        for trial in range(num_trials)
    ]
    found = [path for path in paths if checkpoints.exists(path)]
    if len(found) < num_trials:
        missing = [str(path) for path in paths if path not in found]
        raise UserError(
            f"missing checkpoints: {', '.join(missing)}; found: "
            f"{', '.join(map(str, found)) or 'none'}"
        )
    return paths


def evaluate_continuously(config, parallel=_ONE_DEVICE):
    """Evaluates each checkpoint of a training job, as they come.

    Looks into `<summary_dir>/train` every `eval_interval` seconds and
    evaluates every checkpoint that is there, once and in the order of steps.
    Ends when the training's last step is evaluated, or after `eval_timeout`
    seconds without a new one.

    Raises:
      UserError: if no checkpoint comes at all, or one does not work.
    """
    config.require_summary_dir()
    if not parallel.is_alone:
        raise UserError(
            "waiting for checkpoints is for one process: leave out "
            "--num_processes, or name a --checkpoint"
        )
    directory = pathlib.Path(config.summary_dir) / "train"
    writer = _test_writer(config)
    evaluator = Evaluator(config, parallel)
    last_step, last_time = -1, time.monotonic()
    print(
        f"Waiting for checkpoints in {directory}, until the training's last "
        f"step or {config.eval_timeout:g} seconds without a new one",
        flush=True,
    )
    while True:
        is_final = False
        for step, path in checkpoints.find_all(directory):
            if step <= last_step:
                continue
            last_step, is_final = step, False
            try:
                # A training with --keep may remove it from here on.
                checkpoint = checkpoints.open(path)
                predictions = evaluator.predict(checkpoint)
            except UserError as error:
                removed = not path.is_dir()  # by a training with --keep
                damaged = isinstance(error, checkpoints.DamagedError)
                if not removed and not damaged:
                    raise
                print(f"Warning: {error}; not evaluated", flush=True)
                continue
            print(f"{path}:")
            _print(predictions.score, config)
            _summarise(config, writer, predictions, checkpoint)
            last_time = time.monotonic()
            last = checkpoint.training["max_steps"]
            # A training that went on has later ones than its first last.
            is_final = last is not None and step >= last
        if is_final:
            return
        time_left = last_time + config.eval_timeout - time.monotonic()
        if time_left < 0:
            break
        time.sleep(min(config.eval_interval, time_left))
    if last_step < 0:
        raise UserError(
            f"no checkpoint came to {directory} in {config.eval_timeout:g} "
            "seconds"
        )
    print(
        f"No new checkpoint in {directory} for {config.eval_timeout:g} seconds"
    )


def _summarise(config, writer, predictions, checkpoint):
    """Writes one evaluation for TensorBoard, and the learning curve.

    Args:
      config: `Config`.
      writer: `SummaryWriter`.
      predictions: `Predictions` of the test images.
      checkpoint: the opened one that was evaluated.
    """
    step, result = checkpoint.step, predictions.score
    labels, logits = predictions.labels, predictions.logits
    pipeline = predictions.pipeline
    writer.scalars(evaluation_scalars(result), step)
    if checkpoint.architecture is not None:  # a TF1 one tells nothing
        writer.hparams(checkpoint)
    for name, png in pictures.draw(pipeline, labels, logits, step).items():
        writer.image(name, png, step)
    learning_curve.write(config.summary_dir)


def _test_writer(config):
    return SummaryWriter(pathlib.Path(config.summary_dir) / "test")
