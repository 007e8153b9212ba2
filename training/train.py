"""Training: `fit` on the batches of the remaining steps, with resume."""

import pathlib

import keras

from errors import UserError
from input_data import registry
from models.hparams import HParams, parse_overrides
from models.optimizer import make_optimizer
from progress import Progress
from training import checkpoint
from training.architecture import Architecture
from training.devices import strategy_scope
from training.summaries import SummaryWriter, training_scalars

DEFAULT_MODEL = "capsule"


def train(config):
    """Trains to `max_steps`, from the newest checkpoint if there is one.

    Checkpoints and event files go to `<summary_dir>/train`: one checkpoint
    every `save_step` steps and one at the last.

    Args:
      config: `Config`.

    Raises:
      UserError: for settings, data or checkpoints that do not work.
    """
    config.require_summary_dir()
    pipeline = registry.load(
        config.dataset_name,
        config.split,
        config.data_options(config.num_targets or 1),
    )
    architecture = Architecture(
        model=config.model or DEFAULT_MODEL,
        shape=pipeline.spec.shape,
        num_targets=pipeline.spec.num_targets,
        hparams=HParams(**parse_overrides(config.hparams_override)),
    )
    print(
        f"Training {architecture.model} on {config.dataset_name}: "
        f"{pipeline.spec.num_examples} images"
    )
    directory = pathlib.Path(config.summary_dir) / "train"
    _make_directory(directory)
    checkpoint.remove_partial(directory)

    with strategy_scope(config.num_gpus, config.batch_size):
        model = architecture.build(config.seed)
        model.compile(optimizer=make_optimizer(architecture.hparams))
        start = _resume(directory, model, architecture, config)
    if start < config.max_steps:
        _fit(model, pipeline, start, directory, architecture, config)
    print(
        f"Trained to step {config.max_steps}: "
        f"{checkpoint.path_of(directory, config.max_steps)}"
    )


def _make_directory(directory):
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"--summary_dir: {directory} cannot be made: {error.strerror}"
        ) from None


def _resume(directory, model, architecture, config):
    """Loads the newest checkpoint; returns the step to go on from."""
    found = checkpoint.find_all(directory)
    if not found:
        return 0
    step, path = found[-1]
    metadata = checkpoint.read_metadata(path)
    _require_same_network(path, metadata.architecture, architecture)
    if step > config.max_steps:
        raise UserError(
            f"{path} is beyond --max_steps={config.max_steps}: name another "
            "--summary_dir, or more steps"
        )
    checkpoint.load(path, model)
    print(f"Resuming from {path}")
    differences = metadata.architecture.training_differences(architecture)
    differences += [
        (name, metadata.training[name], value)
        for name, value in _training_settings(config).items()
        if name != "max_steps" and metadata.training.get(name) != value
    ]
    for name, before, now in differences:
        print(f"Note: {name} was {before} and is {now} from here on")
    return step


def _require_same_network(path, saved, asked):
    differences = saved.network_differences(asked)
    if differences:
        listed = "; ".join(
            f"{name} is {there} in the checkpoint, {here} was asked for"
            for name, there, here in differences
        )
        raise UserError(
            f"{path} is of another architecture: {listed}. Ask for the same, "
            "or name another --summary_dir."
        )


def _training_settings(config):
    """What a checkpoint records of the run beside its architecture."""
    return {
        "dataset": config.dataset_name,
        "validate": config.validate,
        "seed": config.seed,
        "batch_size": config.batch_size,
        "max_steps": config.max_steps,
    }


def _fit(model, pipeline, start, directory, architecture, config):
    def save(step):
        metadata = checkpoint.Metadata(
            step, architecture, _training_settings(config)
        )
        checkpoint.save(directory, model, metadata)

    callbacks = [
        _WriteSummaries(start, directory, config),
        _ShowProgress(start, config.max_steps),
        _Save(start, config.max_steps, config.save_step, save),
        _StartNextMean(start, config.summary_step),
    ]
    with pipeline.user_errors():
        model.fit(
            pipeline.training_batches(
                config.batch_size, config.seed, start, config.max_steps
            ),
            callbacks=callbacks,
            shuffle=False,  # the pipeline shuffles
            verbose=0,  # _ShowProgress shows it
        )


class _StepCallback(keras.callbacks.Callback):
    """Calls `on_step` with the number of steps done in the whole training."""

    def __init__(self, start):
        super().__init__()
        self._start = start

    def on_train_batch_end(self, batch, logs=None):
        self.on_step(self._start + batch + 1, logs)


class _WriteSummaries(_StepCallback):
    """Writes scalars every `summary_step` steps: means over those steps."""

    def __init__(self, start, directory, config):
        super().__init__(start)
        self._writer = SummaryWriter(directory)
        self._every = config.summary_step
        self._batch_size = config.batch_size

    def on_step(self, step, logs):
        if step % self._every == 0:
            self._writer.scalars(training_scalars(logs, self._batch_size), step)


class _ShowProgress(_StepCallback):
    """Shows loss and accuracy: means since the last summary."""

    def __init__(self, start, max_steps):
        super().__init__(start)
        self._max_steps = max_steps

    def on_train_begin(self, logs=None):
        self._progress = Progress(self._start, self._max_steps)

    def on_step(self, step, logs):
        self._progress.update(
            step, {name: logs[name] for name in ("loss", "accuracy")}
        )


class _Save(_StepCallback):
    """Calls `save(step)` every `save_step` steps and at the last."""

    def __init__(self, start, max_steps, save_step, save):
        super().__init__(start)
        self._max_steps = max_steps
        self._every = save_step
        self._save = save

    def on_step(self, step, logs):
        if step % self._every == 0 or step == self._max_steps:
            # Asking for the model brings its weights up to date on backends
            # that keep them elsewhere during `fit`.
            assert self.model is not None
            self._save(step)


class _StartNextMean(_StepCallback):
    """Begins new running means after each summary; must come last."""

    def __init__(self, start, every):
        super().__init__(start)
        self._every = every

    def on_step(self, step, logs):
        if step % self._every == 0:
            self.model.reset_metrics()
