"""Validation errors of a training's checkpoints, and which one is the best.

An evaluation with --validate writes `train/model.ckpt-<step>.validation.json`.
"""

import math
import typing

from common.errors import UserError
from common.files import read_json, write_json
from training.checkpoint import checkpoint_path

_SUFFIX = ".validation.json"


class Evaluation(typing.NamedTuple):
    """Counts on the validation images; the smallest tuple is the best.

    Checkpoints with the same error are ordered by loss, then by step.
    """

    wrong: int
    loss: float
    step: int
    num_examples: int


def record(predictions):
    """Stores the validation error of a checkpoint, given its `Predictions`.

    Nothing is stored if the images are not those of the training's data set.
    Evaluations of fewer images than others do not count.
    """
    checkpoint, config = predictions.checkpoint, predictions.config
    dataset = checkpoint.run_settings.get("dataset")
    options = config.validate, config.crops, config.pairs, config.dataset
    # --keep may have removed the checkpoint.
    if options != (True, 1, "overlap", dataset) or not checkpoint.path.is_dir():
        return
    images = predictions.pipeline.evaluation_digest
    score, step = predictions.score, checkpoint.step
    for path in checkpoint.path.parent.glob(f"*{_SUFFIX}"):
        other = read_json(path, "validation")
        if other["images"] == images:
            continue
        if other["num_examples"] >= score.num_examples:
            print(f"{checkpoint.path}: not compared: {path} is of other images")
            return
        path.unlink(missing_ok=True)  # of a smaller --eval_size
    found = Evaluation(score.wrong, score.loss, step, score.num_examples)
    path = f"{checkpoint.path}{_SUFFIX}"
    write_json(path, {**found._asdict(), "images": images})


def evaluations(directory):
    """List of the `Evaluation` of a directory's checkpoints, sorted by step."""
    files = (read_json(p, "validation") for p in directory.glob(f"*{_SUFFIX}"))
    found = [
        # A loss of NaN is not JSON.
        Evaluation(*(values.get(name, math.inf) for name in Evaluation._fields))
        for values in files
    ]
    return sorted(found, key=lambda evaluation: evaluation.step)


def best_of(directory):
    """The `Evaluation` of the best checkpoint of a directory, or None."""
    return min(evaluations(directory), default=None)


def resolve_best(path):
    """The path of the checkpoint that `path`, SUMMARY_DIR/best, stands for."""
    for directory in (path.parent / "train", path.parent):
        if best := best_of(directory):
            found = checkpoint_path(directory, best.step)
            if not found.is_dir():
                raise UserError(f"{path} means {found}, which was deleted")
            return found
    if not path.parent.is_dir():
        raise UserError(f"{path.parent} does not exist")
    raise UserError(f"{path}: no checkpoint was evaluated with --validate")


def forget_after(directory, step):
    """Removes the errors of later checkpoints than that of a step."""
    for path in directory.glob(f"*{_SUFFIX}"):
        if read_json(path, "validation")["step"] > step:
            path.unlink()


def ends_early(config, directory, step):
    """Whether `patience` evaluations by `eval_every` had no smaller error.

    Only those up to a `step` count, so that a resumed training ends there, too.
    """
    counted = [e for e in evaluations(directory) if e.step <= step]
    wrong = [e.wrong for e in counted if e.step % config.eval_every == 0]
    first = wrong.index(min(wrong)) if wrong else 0
    return len(wrong) > config.patience + first
