"""Evaluation: of one checkpoint, of each new one, and of an ensemble."""

import dataclasses
import pathlib
import time

import numpy as np

import layers
from errors import UserError
from input_data import features as keys
from input_data import registry
from models.hparams import HParams, parse_overrides
from progress import Progress
from training import checkpoint, tf1_format
from training.architecture import Architecture
from training.config import EVAL_BATCH_SIZE
from training.summaries import SummaryWriter, evaluation_scalars
from training.train import DEFAULT_MODEL


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
    # NumPy arrays: not every backend takes tensors of TensorFlow here.
    batches = pipeline.evaluation_batches(EVAL_BATCH_SIZE)
    with pipeline.user_errors():
        for x, y in batches.as_numpy_iterator():
            logits.append(model.predict_on_batch(x)[keys.LOGITS])
            labels.append(y[keys.LOGITS])
            done += len(labels[-1])
            progress.update(done, {})
    return np.concatenate(labels), np.concatenate(logits)


class Evaluator:
    """Evaluates checkpoints on one split of one data set.

    The network is the one that each checkpoint describes; settings on the
    command line that contradict it are refused. A TF1 checkpoint describes
    none: its network is that of the command line and the data set.

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
        if tf1_format.is_tf1(path):
            self._require_named_data(path)
            source = tf1_format.Tf1Checkpoint(path)
            num_targets = self._config.num_targets or 1
            pipeline = self._pipeline(num_targets)
            architecture = self._asked_architecture(pipeline.spec)
            model = self._model(architecture)
            source.load(model, architecture)
        else:
            metadata = checkpoint.read_metadata(path)
            self._refuse_contradictions(path, metadata)
            architecture = metadata.architecture
            num_targets = self._config.num_targets or architecture.num_targets
            pipeline = self._pipeline(num_targets)
            self._require_same_shape(path, architecture, pipeline)
            self._require_same_split(path, metadata, pipeline)
            model = self._model(architecture)
            checkpoint.load(path, model)
        labels, logits = predict(model, pipeline)
        return labels, logits, num_targets

    def _model(self, architecture):
        # Continuous evaluation meets the same network again and again.
        if self._built is None or self._built[0] != architecture:
            self._built = (architecture, architecture.build())
        return self._built[1]

    def _asked_architecture(self, spec):
        return Architecture(
            model=self._config.model or DEFAULT_MODEL,
            shape=spec.shape,
            num_targets=spec.num_targets,
            hparams=HParams(**self._overrides),
        )

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
        # Other hyper-parameters do not matter any more.
        saved = {
            "model": architecture.model,
            **{
                name: getattr(architecture.hparams, name)
                for name in architecture.network_hparams
            },
        }
        self._refuse_validation_on_training_images(path, metadata)
        known = metadata.training["dataset"]
        if known is None:  # converted from TF1
            self._require_named_data(path)
        elif config.dataset is None:
            asked["dataset"] = config.dataset_name
            saved["dataset"] = known
        contradictions = [
            f"{name} is {saved[name]} in the checkpoint, {value} was asked for"
            for name, value in asked.items()
            if value is not None and saved.get(name, value) != value
        ]
        if not contradictions:
            return
        advice = "Leave out what the checkpoint knows by itself."
        if asked.get("dataset") not in (None, saved.get("dataset")):
            advice = "Name the data to evaluate on by --dataset and --data_dir."
        raise UserError(f"{path}: {'; '.join(contradictions)}. {advice}")

    def _require_named_data(self, path):
        if self._config.dataset is None and self._config.data_dir is None:
            raise UserError(
                f"{path} does not tell which data it is for: name them by "
                "--dataset and --data_dir"
            )

    def _refuse_validation_on_training_images(self, path, metadata):
        training = metadata.training
        if (
            self._config.validate
            and training["validate"] is False
            and training["dataset"] == self._config.dataset_name
        ):
            raise UserError(
                f"{path} was trained without --validate, on the very images "
                "that --validate holds out: leave it out here, or train with "
                "it"
            )

    def _require_same_shape(self, path, architecture, pipeline):
        spec = pipeline.spec
        if architecture.shape != spec.shape:
            raise UserError(
                f"{path} is for {_describe(architecture.shape)} with "
                f"--num_targets={architecture.num_targets}, but "
                f"{self._config.dataset_name} with --num_targets="
                f"{spec.num_targets} has {_describe(spec.shape)}"
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
        step = _step(config.checkpoint)
        _test_writer(config).scalars(evaluation_scalars(result), step)
    return result


def _step(path):
    if tf1_format.is_tf1(path):
        return tf1_format.Tf1Checkpoint(path).step
    return checkpoint.read_metadata(path).step


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
    first_targets = None
    for path in paths:
        labels, logits, num_targets = evaluator.predict(path)
        first_targets = first_targets or num_targets
        if num_targets != first_targets:
            raise UserError(
                f"{path} is for {num_targets} targets but {paths[0]} for "
                f"{first_targets}: they cannot form an ensemble unless "
                "--num_targets says which images to take"
            )
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
    found = [path for path in paths if path.is_dir() or tf1_format.is_tf1(path)]
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
    print(f"Waiting for checkpoints in {directory}", flush=True)
    while True:
        is_final = False
        for step, path in checkpoint.find_all(directory):
            if step <= last_step:
                continue
            last_step, is_final = step, False
            try:
                result = score(*evaluator.predict(path))
                last = checkpoint.read_metadata(path).training["max_steps"]
            except UserError as error:
                removed = not path.is_dir()  # by a training with --keep
                damaged = isinstance(error, checkpoint.DamagedError)
                if not removed and not damaged:
                    raise
                print(f"Warning: {error}; not evaluated", flush=True)
                continue
            print(f"{path}:")
            print(result, flush=True)
            writer.scalars(evaluation_scalars(result), step)
            last_time = time.monotonic()
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


def _test_writer(config):
    return SummaryWriter(pathlib.Path(config.summary_dir) / "test")
