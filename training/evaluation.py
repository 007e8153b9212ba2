"""Evaluation: of one checkpoint, of each new one, and of an ensemble."""

import dataclasses
import pathlib
import time

import numpy as np

import layers
from errors import UserError
from input_data import features as keys
from input_data import registry
from models.hparams import parse_overrides
from training import checkpoint
from training.config import EVAL_BATCH_SIZE
from training.progress import Progress
from training.summaries import SummaryWriter, evaluation_scalars


@dataclasses.dataclass(frozen=True)
class Score:
    """Counts of right and wrong predictions.

    Attributes:
      num_examples: int, all that were evaluated.
      correct: int, all classes of the example are right.
      almost_correct: int, at least one is.
    """

    num_examples: int
    correct: int
    almost_correct: int

    @property
    def wrong(self):
        """How many are not correct."""
        return self.num_examples - self.correct

    @property
    def almost_wrong(self):
        """How many are not even almost correct."""
        return self.num_examples - self.almost_correct

    def __str__(self):
        percent = 100.0 * self.wrong / self.num_examples
        return (
            f"Total wrong predictions: {self.wrong}, "
            f"wrong percent: {percent:.2f}%"
        )


def score(labels, logits, num_targets):
    """Counts right predictions; logits that are not finite are wrong.

    Args:
      labels: array [N, classes], k-hot.
      logits: array [N, classes].
      num_targets: int, the number of labels of each example.

    Returns:
      `Score`.
    """
    finite = np.isfinite(logits).all(axis=-1)

    def count(function):
        values = np.asarray(function(labels, logits, num_targets))
        return int(values[finite].sum())

    return Score(
        len(labels), count(layers.correct), count(layers.almost_correct)
    )


def predict(model, pipeline):
    """The model's logits for every example of a pipeline, and the labels.

    Args:
      model: `keras.Model`.
      pipeline: `Pipeline`.

    Returns:
      Pair of float32 arrays [N, classes]: labels (k-hot) and logits.
    """
    labels, logits = [], []
    num_examples = pipeline.spec.num_examples
    progress = Progress(0, num_examples, name="image")
    done = 0
    for x, y in pipeline.evaluation_batches(EVAL_BATCH_SIZE):
        logits.append(model.predict_on_batch(x)[keys.LOGITS])
        labels.append(y[keys.LOGITS].numpy())
        done += len(labels[-1])
        progress.update(done, {})
    return np.concatenate(labels), np.concatenate(logits)


class Evaluator:
    """Evaluates checkpoints on one split of one data set.

    The network is the one that each checkpoint describes; settings on the
    command line that contradict it are refused.

    Args:
      config: `Config`.
    """

    def __init__(self, config):
        self._config = config
        self._overrides = parse_overrides(config.hparams_override)
        self._pipelines = {}
        self._built = None  # the last (architecture, model)

    def predict(self, path):
        """Labels and logits of the checkpoint at `path`.

        Returns:
          Tuple of labels and logits, both float32 [N, classes], and the
          number of targets.

        Raises:
          UserError: if there is no such checkpoint, it is damaged, or it does
            not fit the settings or the data set.
        """
        metadata = checkpoint.read_metadata(path)
        self._refuse_contradictions(path, metadata)
        architecture = metadata.architecture
        num_targets = self._config.num_targets or architecture.num_targets
        pipeline = self._pipeline(num_targets)
        self._require_same_shape(path, architecture, pipeline)
        self._require_same_split(path, metadata, pipeline)
        # Continuous evaluation meets the same network again and again.
        if self._built is None or self._built[0] != architecture:
            self._built = (architecture, architecture.build())
        model = self._built[1]
        checkpoint.load(path, model)
        labels, logits = predict(model, pipeline)
        return labels, logits, num_targets

    def _pipeline(self, num_targets):
        if num_targets not in self._pipelines:
            config = self._config
            self._pipelines[num_targets] = registry.load(
                config.dataset_name,
                config.split,
                config.data_options(num_targets),
            )
        return self._pipelines[num_targets]

    def _refuse_contradictions(self, path, metadata):
        config, architecture = self._config, metadata.architecture
        asked = {"model": config.model, **self._overrides}
        saved = {
            "model": architecture.model,
            **dataclasses.asdict(architecture.hparams),
        }
        if config.dataset is None:
            asked["dataset"] = config.dataset_name
            saved["dataset"] = metadata.training["dataset"]
        contradictions = [
            f"{name} is {saved[name]} in the checkpoint, {value} was asked for"
            for name, value in asked.items()
            if value is not None and saved[name] != value
        ]
        if not contradictions:
            return
        advice = "Leave out what the checkpoint knows by itself."
        if asked.get("dataset") not in (None, saved.get("dataset")):
            advice = "Name the data to evaluate on by --dataset and --data_dir."
        raise UserError(f"{path}: {'; '.join(contradictions)}. {advice}")

    def _require_same_shape(self, path, architecture, pipeline):
        if architecture.shape != pipeline.spec.shape:
            raise UserError(
                f"{path} is for {_describe(architecture.shape)}, but "
                f"{self._config.dataset_name} has "
                f"{_describe(pipeline.spec.shape)}"
            )

    def _require_same_split(self, path, metadata, pipeline):
        """Refuses to test on images that the training may have seen."""
        trained_on = metadata.training
        if (
            pipeline.split_seed is not None
            and trained_on.get("dataset") == self._config.dataset_name
            and trained_on.get("seed") != pipeline.split_seed
        ):
            raise UserError(
                f"{path} was trained with --seed={trained_on.get('seed')}, "
                "which decided what images are for training: evaluate with "
                "the same seed, or split the images into folders train and "
                "test"
            )


def _describe(shape):
    return (
        f"images of {shape.height}x{shape.width}x{shape.depth} in "
        f"{shape.num_classes} classes"
    )


def evaluate_once(config):
    """Evaluates the checkpoint that `config.checkpoint` names.

    Returns:
      `Score`.
    """
    if "{}" in config.checkpoint:
        raise UserError(
            f"--checkpoint={config.checkpoint} names an ensemble by {{}}: say "
            "of how many checkpoints by --num_trials"
        )
    result = score(*Evaluator(config).predict(config.checkpoint))
    print(result)
    if config.summary_dir:
        step = checkpoint.read_metadata(config.checkpoint).step
        _test_writer(config).scalars(evaluation_scalars(result), step)
    return result


def evaluate_ensemble(config):
    """Evaluates checkpoints, and the sum of their logits.

    `{}` in `config.checkpoint` stands for 0 to `num_trials` - 1.

    Returns:
      Pair of the list of each member's `Score` and the ensemble's `Score`.

    Raises:
      UserError: if a checkpoint is missing: it lists those that were found.
    """
    paths = _ensemble_paths(config.checkpoint, config.num_trials)
    evaluator = Evaluator(config)
    members, total = [], 0.0
    for path in paths:
        labels, logits, num_targets = evaluator.predict(path)
        members.append(score(labels, logits, num_targets))
        print(f"{path}: {members[-1]}")
        total = total + logits
    result = score(labels, total, num_targets)
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
    found = [path for path in paths if path.is_dir()]
    if len(found) < num_trials:
        missing = [str(path) for path in paths if path not in found]
        raise UserError(
            f"missing checkpoints: {', '.join(missing)}; found: "
            f"{', '.join(map(str, found)) or 'none'}"
        )
    return paths


def evaluate_continuously(config):
    """Evaluates each checkpoint of a training job, as they come.

    Looks into `<summary_dir>/train` every `eval_interval` seconds and
    evaluates every checkpoint that is there, once and in the order of steps.
    Ends when the training's last step is evaluated, or after `eval_timeout`
    seconds without a new one.

    Raises:
      UserError: if no checkpoint comes at all, or one does not work.
    """
    config.require_summary_dir()
    directory = pathlib.Path(config.summary_dir) / "train"
    writer = _test_writer(config)
    evaluator = Evaluator(config)
    last_step, last_time = -1, time.monotonic()
    while True:
        for step, path in checkpoint.find_all(directory):
            if step <= last_step:
                continue
            result = score(*evaluator.predict(path))
            print(f"{path}:")
            print(result, flush=True)
            writer.scalars(evaluation_scalars(result), step)
            last_step, last_time = step, time.monotonic()
            if step >= checkpoint.read_metadata(path).training["max_steps"]:
                return
        if time.monotonic() - last_time > config.eval_timeout:
            break
        time.sleep(config.eval_interval)
    if last_step < 0:
        raise UserError(
            f"no checkpoint came to {directory} in {config.eval_timeout:g} "
            "seconds"
        )
    print(
        f"No new checkpoint in {directory} for {config.eval_timeout:g} seconds"
    )


def _test_writer(config):
    return SummaryWriter(pathlib.Path(config.summary_dir) / "test")
