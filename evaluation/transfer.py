"""Trained on one object, tested on two: several models on the same pairs."""

import dataclasses
import itertools

import checkpoints
from evaluation.counts import predicted_classes
from evaluation.evaluator import Evaluator, require_same_images
from evaluation.prediction import require_finite
from input_data import features as keys
from old.errors import UserError


def measure(config, models, num_examples):
    """Evaluates models on single test images and on pairs of them.

    Args:
      config: `Config` of the data, with `pairs` below or beside.
      models: dict from a name to the paths of checkpoints: runs of one model.
      num_examples: int, how many of the pairs are for a figure: the first.

    Returns:
      Pair of a dict for json, with keys

        dataset, pairs, seed: of the config
        runs: by name a list of dicts, one for each checkpoint: `checkpoint`,
          and of `single` and `pairs` what a `Score` counts
        examples: a list of dicts: `labels`, and `predictions` of each model's
          first checkpoint, by name the two classes and their values

      and of the images of these examples, float32 [N, H, W, C].

    Raises:
      UserError: if a checkpoint is missing, for images of one size, does not
        fit the data, or gives numbers that are not finite.
    """
    if config.pairs == "overlap":
        raise UserError("--pairs must be below or beside")
    evaluators = {
        "single": Evaluator(
            dataclasses.replace(config, num_targets=1, pairs="overlap")
        ),
        "pairs": Evaluator(dataclasses.replace(config, num_targets=2)),
    }
    checkpoints.require_existing(list(itertools.chain(*models.values())))
    runs = {name: [] for name in models}
    predictions, pipeline = {}, None
    for name, path in (
        (name, path) for name, paths in models.items() for path in paths
    ):
        run = {"checkpoint": str(path)}
        checkpoint = checkpoints.open(path)
        for kind, evaluator in evaluators.items():
            found = evaluator.predict(checkpoint)
            require_finite(found.logits)
            run[kind] = dataclasses.asdict(found.score)
            del run[kind]["loss"]  # NaN, of some networks, is not JSON
        pipeline = pipeline or found.pipeline
        require_same_images(found, pipeline, path)
        print(f"{name}, {path}: {found.score.measures}", flush=True)
        runs[name].append(run)
        predictions.setdefault(name, _predictions(found.logits[:num_examples]))
    images = _first_images(found.pipeline, num_examples)
    examples = [
        {
            "labels": found.labels[number].nonzero()[0].tolist(),
            "predictions": {
                name: rows[number] for name, rows in predictions.items()
            },
        }
        for number in range(len(images))
    ]
    return {
        "dataset": found.dataset,
        "pairs": config.pairs,
        "seed": config.seed,
        "runs": runs,
        "examples": examples,
    }, images


def _predictions(logits):
    """For each row the two classes of the largest values, and the values."""
    return [
        [[int(c), float(row[c])] for c in classes]
        for row, classes in zip(
            logits, predicted_classes(logits, 2), strict=True
        )
    ]


def _first_images(pipeline, count):
    ((x, _),) = itertools.islice(pipeline.evaluation_batches(count, count), 1)
    return x[keys.IMAGES]
