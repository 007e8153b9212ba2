"""The networks of checkpoints, with the images to evaluate them on."""

import dataclasses

import numpy as np

from checkpoints.architecture import Architecture
from common.errors import UserError
from common.progress import Progress
from devices.parallel import OneDevice
from evaluation.counts import score
from input_data import features as keys
from input_data import registry
from input_data.pipeline import Pipeline
from models.hparams import parse_overrides
from training.config import EVAL_BATCH_SIZE


@dataclasses.dataclass(frozen=True)
class Predictions:
    """What a network makes of every example of a pipeline.

    Attributes:
      labels: float32 array [N, classes], k-hot.
      logits: float32 array [N, classes].
      losses: float32 array [N].
      pipeline: `Pipeline` that the images came from.
    """

    labels: np.ndarray
    logits: np.ndarray
    losses: np.ndarray
    pipeline: Pipeline

    @property
    def score(self):
        """The `Score`."""
        num_targets = self.pipeline.spec.num_targets
        counts = score(self.labels, self.logits, num_targets)
        return dataclasses.replace(counts, loss=float(self.losses.mean()))


def predict(predictor, pipeline, batch_size):
    """The `Predictions` of a network.

    Args:
      predictor: function of a batch, see `OneDevice.predictor`.
      pipeline: `Pipeline`.
      batch_size: int.
    """
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
            (logits, losses), predictor(*full), strict=True
        ):
            found.append(values[:size])
        done += size
        progress.update(done, {})
    arrays = map(np.concatenate, (labels, logits, losses))
    return Predictions(*arrays, pipeline)


def _fill(array, size):
    """Repeats the last row until there are `size` rows."""
    return np.pad(
        array,
        [(0, size - len(array))] + [(0, 0)] * (array.ndim - 1),
        mode="edge",
    )


class Evaluator:
    """Evaluates checkpoints on one split of one data set.

    The network is the one that each checkpoint describes; settings on the
    command line that contradict it are refused. A TF1 checkpoint describes
    none: its network is that of the command line and the data set.

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

    def predict(self, checkpoint):
        """The `Predictions` of an opened checkpoint.

        Raises:
          UserError: as `load`.
        """
        _, pipeline = self.load(checkpoint)
        _, _, predictor = self._built
        batch_size = self._parallel.round_up(EVAL_BATCH_SIZE)
        return predict(predictor, pipeline, batch_size)

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
        config, architecture = self._config, checkpoint.architecture
        self._refuse_contradictions(checkpoint)
        pipeline = self._pipeline(
            config.num_targets
            or (architecture.num_targets if architecture else 1)
        )
        if architecture is None:
            architecture = Architecture.asked_for(config, pipeline.spec)
        fitted = self._fitted(checkpoint.path, architecture, pipeline)
        checkpoint.require_usable(config, pipeline)
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

    def _pipeline(self, num_targets):
        if num_targets not in self._pipelines:
            config = self._config
            self._pipelines[num_targets] = registry.load(
                config.dataset_name,
                config.split(train=False),
                dataclasses.replace(config, num_targets=num_targets),
            )
        return self._pipelines[num_targets]

    def _refuse_contradictions(self, checkpoint):
        config, architecture = self._config, checkpoint.architecture
        known = checkpoint.training.get("dataset")
        if known is None and config.dataset is None and config.data_dir is None:
            raise UserError(
                f"{checkpoint.path} does not tell which data it is for: name "
                "them by --dataset and --data_dir"
            )
        if architecture is None:
            return
        asked = {"model": config.model}
        if config.model in (None, architecture.model):
            asked |= parse_overrides(
                type(architecture.hparams), config.hparams_override
            )
        # Other hyper-parameters do not matter any more.
        saved = {
            "model": architecture.model,
            **{
                name: getattr(architecture.hparams, name)
                for name in architecture.network_hparams
            },
        }
        if known is not None and config.dataset is None:
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
        raise UserError(
            f"{checkpoint.path}: {'; '.join(contradictions)}. {advice}"
        )

    def _fitted(self, path, architecture, pipeline):
        """The network for the images' size, if its weights are for any."""
        spec, shape = pipeline.spec, architecture.shape
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
                f": the weights of model {architecture.model} depend on the "
                "size of the images"
            )
        raise UserError(
            f"{path} is for {_describe(shape)} with "
            f"--num_targets={architecture.num_targets}, but "
            f"{self._config.dataset_name} with --num_targets="
            f"{spec.num_targets} has {_describe(spec.shape)}{reason}"
        )


def _describe(shape):
    return (
        f"images of {shape.height}x{shape.width}x{shape.depth} in "
        f"{shape.num_classes} classes"
    )
