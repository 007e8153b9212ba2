"""The networks of checkpoints, with the images to evaluate them on."""

import dataclasses
import functools
import itertools

import numpy as np

from checkpoints.architecture import Architecture
from devices.parallel import OneDevice
from evaluation.counts import confusion_matrix, score
from input_data import features as keys
from input_data import registry
from input_data.pipeline import Pipeline
from models.hparams import parse_overrides
from old.errors import UserError
from old.fields import meanings
from old.progress import Progress
from training.config import EVAL_BATCH_SIZE

# Pixels down and right, of twelve crops.
_AROUND = tuple(
    (down * pixels, right * pixels)
    for pixels in (1, 2, 3)
    for down, right in itertools.product((-1, 1), repeat=2)
)


@dataclasses.dataclass(frozen=True)
class Predictions:
    """What a network makes of every example of a pipeline.

    Attributes:
      labels: float32 array [N, classes], k-hot.
      logits: float32 array [N, classes].
      losses: float32 array [N]; None of an ensemble.
      pipeline: `Pipeline` that the images came from.
      dataset: string, the name of their data set, where it is known.
    """

    labels: np.ndarray
    logits: np.ndarray
    losses: np.ndarray | None
    pipeline: Pipeline
    dataset: str | None = None

    @functools.cached_property
    def score(self):
        """The `Score`."""
        counts = score(self.labels, self.logits, self.pipeline.spec.num_targets)
        loss = None if self.losses is None else float(self.losses.mean())
        return dataclasses.replace(counts, loss=loss)

    @functools.cached_property
    def confusion_matrix(self):
        """Float array [classes, classes], see `counts.confusion_matrix`."""
        num_targets = self.pipeline.spec.num_targets
        return confusion_matrix(self.labels, self.logits, num_targets)


def predict(predictor, pipeline, batch_size):
    """The `Predictions` of a network.

    Args:
      predictor: see `OneDevice.predictor`.
      pipeline: `Pipeline`.
      batch_size: int.
    """
    predict_batch = predictor()
    labels, logits, losses = [], [], []
    num_examples = pipeline.spec.num_examples
    progress = Progress(0, num_examples, name="image")
    done = 0
    for x, y in pipeline.evaluation_batches(batch_size):
        labels.append(y[keys.LOGITS])
        size = len(labels[-1])
        # All batches have one size, which splits over the devices: the last is
        # filled up, and what filled it does not count.
        full = (
            {name: _fill(array, batch_size) for name, array in part.items()}
            for part in (x, y)
        )
        for found, values in zip(
            (logits, losses), predict_batch(*full), strict=True
        ):
            found.append(values[:size])
        done += size
        progress.update(done, {})
    arrays = map(np.concatenate, (labels, logits, losses))
    return Predictions(*arrays, pipeline)


def require_same_images(predictions, pipeline, path, *flags):
    """Raises UserError if predictions are of other images than a pipeline's.

    Args:
      predictions: `Predictions` of a checkpoint, by the same `Evaluator`.
      pipeline: `Pipeline` of the first checkpoint.
      path: path of the checkpoint.
      *flags: strings, names of more flags that say which images to take.
    """
    if predictions.pipeline is not pipeline:
        raise UserError(
            f"{path} was trained on images of another kind than the first "
            "checkpoint: say which to evaluate all on, by "
            f"{', '.join((*flags, '--dataset', '--image_size', '--pad'))} and "
            "the like"
        )


def _shares(activations):
    """Rows divided by their sums: [N, classes], none negative."""
    sums = activations.sum(axis=-1, keepdims=True)
    return activations / np.maximum(sums, np.finfo("float32").tiny)


def _fill(array, size):
    """Repeats the last row until there are `size` rows."""
    return np.pad(
        array,
        [(0, size - len(array))] + [(0, 0)] * (array.ndim - 1),
        mode="edge",
    )


class Evaluator:
    """Evaluates checkpoints on one split of one data set.

    The network is the one that each checkpoint describes, and so are the data
    set and how its images look where the settings do not say; settings that
    contradict the network are refused. A TF1 checkpoint describes none: its
    network is that of the command line and the data set.

    Args:
      config: `Config`.
      parallel: `parallel.OneDevice`, the default, or one of its subclasses:
        what to compute on.
    """

    def __init__(self, config, parallel=None):
        self._config = config
        self._parallel = parallel or OneDevice()
        self._pipelines = {}
        self._built = None  # the last (architecture, model, predictor)

    @property
    def model(self):
        """The `keras.Model` of the checkpoint that came last."""
        return self._built[1]

    def predict(self, checkpoint):
        """The `Predictions` of an opened checkpoint.

        Raises:
          UserError: as `load`.
        """
        _, pipeline = self.load(checkpoint)
        _, _, predictor = self._built
        config = self.settings_for(checkpoint)
        batch_size = self._parallel.round_up(EVAL_BATCH_SIZE)
        found = predict(predictor, pipeline, batch_size)
        if config.crops > 1:
            found = self._over_crops(found, predictor, batch_size)
        return dataclasses.replace(found, dataset=config.dataset_name)

    def _over_crops(self, middle, predictor, batch_size):
        """Predictions of the middle of images, and of crops around it.

        Source: G. E. Hinton, S. Sabour, N. Frosst, "Matrix capsules with EM
        routing", ICLR 2018, section 5: the activations of all crops are
        averaged. The loss stays that of the middle.
        """
        total = _shares(middle.logits)
        for offset in _AROUND:
            moved = middle.pipeline.moved(offset)
            total += _shares(predict(predictor, moved, batch_size).logits)
        mean = total / (1 + len(_AROUND))
        return dataclasses.replace(middle, logits=mean)

    def settings_for(self, checkpoint):
        """The `Config`, and what is not given as the checkpoint knows it.

        Raises:
          UserError: if it does not know the data set either.
        """
        config = self._config.as_in(checkpoint.training)
        if config.dataset is None and config.data_dir is None:
            raise UserError(
                f"{checkpoint.path} does not tell which data it is for: name "
                "them by --dataset and --data_dir"
            )
        return config

    def load(self, checkpoint):
        """The network of a checkpoint, and the data for it.

        Args:
          checkpoint: as `checkpoints.open` gives it.

        Returns:
          Pair of the `keras.Model` with the checkpoint's weights, and the
          `Pipeline`. The next call may give the model other weights.

        Raises:
          UserError: if the checkpoint does not fit the settings or the data
            set, or cannot be read.
        """
        architecture = checkpoint.architecture
        self.refuse_contradictions(checkpoint)
        config = self.settings_for(checkpoint)
        if config.num_targets is None:
            num_targets = architecture.num_targets if architecture else 1
            config = dataclasses.replace(config, num_targets=num_targets)
        pipeline = self._pipeline(config)
        if architecture is None:
            architecture = Architecture.from_config(config, pipeline.spec)
        architecture.require_evaluable(config)
        fitted = _fitted(checkpoint, architecture, config, pipeline.spec)
        checkpoint.require_usable(config, pipeline)
        checkpoint.require_same_network(architecture)  # before it is made
        # No weight depends on them, but which images the loss compares.
        num_targets = pipeline.spec.num_targets
        fitted = dataclasses.replace(fitted, num_targets=num_targets)
        model = self._model(fitted)
        checkpoint.load(model, architecture)
        return model, pipeline

    def _model(self, architecture):
        # Continuous evaluation meets the same network again and again.
        if self._built is None or self._built[0] != architecture:
            with self._parallel.building():
                model = architecture.build()
            predictor = self._parallel.predictor(model)
            self._built = (architecture, model, predictor)
        return self._built[1]

    def _pipeline(self, config):
        if config not in self._pipelines:
            self._pipelines[config] = registry.load(
                config.dataset_name, config.split(train=False), config
            )
        return self._pipelines[config]

    def refuse_contradictions(self, checkpoint):
        """Raises UserError for settings of a network that is another one."""
        config, architecture = self._config, checkpoint.architecture
        if architecture is None:
            return
        # Other hyper-parameters do not matter any more.
        saved = {"model": architecture.model}
        asked = {"model": config.model or architecture.model}
        if asked == saved:
            hparams, names = architecture.hparams, architecture.network_hparams
            saved = {name: getattr(hparams, name) for name in names}
            asked = parse_overrides(type(hparams), config.hparams_override)
        contradictions = [
            f"{name} is {saved[name]} in the checkpoint, {value} was asked for"
            for name, value in asked.items()
            if saved.get(name, value) != value
        ]
        if contradictions:
            raise UserError(
                f"{checkpoint.path}: {'; '.join(contradictions)}. Leave out "
                "what the checkpoint knows by itself."
            )


def _fitted(checkpoint, architecture, config, spec):
    """The network for the images' size, if its weights are for any."""
    shape = architecture.shape
    if shape == spec.shape:
        return architecture
    resized = dataclasses.replace(
        shape, height=spec.shape.height, width=spec.shape.width
    )
    if resized == spec.shape and architecture.takes_any_size:
        return dataclasses.replace(architecture, shape=resized)
    reason = ""
    if resized == spec.shape:
        reason = (
            f": the weights of model {architecture.model} depend on the size "
            "of the images"
        )
    raise UserError(
        f"{checkpoint.path} is for {_describe(shape)} with "
        f"--num_targets={architecture.num_targets}, but {config.dataset_name} "
        f"with --num_targets={spec.num_targets} has {_describe(spec.shape)}"
        f"{reason}{_differences(config, checkpoint.training)}"
    )


def _differences(config, training):
    """Which flags differ from those of a training on the same data set."""
    if config.dataset_name != training.get("dataset"):
        return ""
    differences = [
        f"--{name}={getattr(config, name)} was {training.get(name)} in its "
        "training"
        for name, (_, _, meaning) in meanings(config).items()
        if meaning.kept and getattr(config, name) != training.get(name)
    ]
    return "".join(f"; {difference}" for difference in differences)


def _describe(shape):
    return (
        f"images of {shape.height}x{shape.width}x{shape.depth} in "
        f"{shape.num_classes} classes"
    )
