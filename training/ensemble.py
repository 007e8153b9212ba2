"""Evaluates checkpoints that --checkpoint names: one, or an ensemble."""

import dataclasses
import pathlib
import statistics

from common.errors import UserError
from training.evaluate import Evaluator
from training.formats import open_checkpoint
from training.results import Results


def evaluate_checkpoints(config, strategy):
    """Evaluates and reports a checkpoint, or an ensemble and its members.

    Returns the `Score`; an ensemble is scored by its members' mean logits.
    """
    paths = config.members
    members = [open_checkpoint(path, config.model) for path in paths]
    is_ensemble = len(members) > 1
    evaluator = Evaluator(config, strategy)
    kinds, predictions = set(), []
    with Results(config, strategy) as results:
        for path, member in zip(paths, members, strict=True):
            predictions.append(evaluator.predict(member))
            # Lengths of capsules have the same scale, other logits do not.
            model = evaluator.model
            loss = getattr(model.hparams, "loss_type", None)
            scale = model.has_lengths or (model.name, loss)
            kinds.add((predictions[-1].pipeline, scale))
            if len(kinds) > 1:
                raise UserError(
                    f"{member.path} does not fit {members[0].path}: an "
                    "ensemble needs the same images and kind of outputs"
                )
            title = f"{member.path}: " if is_ensemble else ""
            if not is_ensemble and member.path != pathlib.Path(path):
                title = f"{member.path}:\n"  # a folder's newest or best
            step = None if is_ensemble else member.step
            results.report(title, predictions[-1], step)
        if not is_ensemble:
            return predictions[0].score
        errors = [member.score.wrong_percent for member in predictions]
        print(
            f"Mean of {len(errors)}: wrong percent: "
            f"{statistics.mean(errors):.2f} ± {statistics.stdev(errors):.2f}%"
        )
        seconds_per_image = sum(1 / m.images_per_second for m in predictions)
        ensemble = dataclasses.replace(
            predictions[-1],
            logits=sum(m.logits for m in predictions) / len(members),
            losses=None,
            images_per_second=1 / seconds_per_image,
            checkpoint=None,
        )
        step = max(member.step for member in members)
        results.report(f"Ensemble of {len(members)}:\n", ensemble, step)
    return ensemble.score
