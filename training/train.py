"""Training: `fit` on the batches of the remaining steps, with resume."""

import math
import pathlib

import keras

from errors import Interrupted, UserError
from input_data import registry
from models.hparams import HParams, parse_overrides
from models.optimizer import make_optimizer
from progress import Progress
from training import checkpoint, tf1_format
from training.architecture import Architecture
from training.devices import strategy_scope
from training.process import StopSignal, sole_trainer
from training.summaries import SummaryWriter, training_scalars

DEFAULT_MODEL = "capsule"
# Verbose summaries are written with every tenth point of the curves.
VERBOSE_EVERY = 10


def train(config):
    """Trains to `max_steps`, from the newest checkpoint if there is one.

    Checkpoints and event files go to `<summary_dir>/train`: one checkpoint
    every `save_step` steps and one at the last.

    Args:
      config: `Config`.

    SIGTERM and Ctrl-C end it after the step, which is saved.

    Raises:
      UserError: for settings, data or checkpoints that do not work, and if
        the loss becomes infinite or NaN.
      Interrupted: after a signal.
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
        f"{pipeline.num_images} images"
    )
    directory = pathlib.Path(config.summary_dir) / "train"
    _make_directory(directory)
    with sole_trainer(directory), StopSignal() as stop:
        checkpoint.remove_partial(directory)
        with strategy_scope(config.num_gpus, config.batch_size):
            model = architecture.build(config.seed)
            model.compile(optimizer=make_optimizer(architecture.hparams))
            start = _resume(directory, model, architecture, config)
        if start < config.max_steps:
            _fit(model, pipeline, start, directory, architecture, config, stop)
    step = int(keras.ops.convert_to_numpy(model.optimizer.iterations))
    path = checkpoint.path_of(directory, step)
    if stop.number is not None and step < config.max_steps:
        raise Interrupted(f"Stopped at step {step}, saved {path}", stop.number)
    if step != config.max_steps:
        raise RuntimeError(f"training ended by itself at step {step}")
    print(f"Trained to step {step}: {path}")


def _make_directory(directory):
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"--summary_dir: {directory} cannot be made: {error.strerror}"
        ) from None


def _resume(directory, model, architecture, config):
    """Loads the newest sound checkpoint; returns the step to go on from."""
    newest = _newest_sound(directory)
    if newest is None:
        return _initialize(model, architecture, config)
    step, path = newest
    metadata = checkpoint.read_metadata(path)
    _require_same_network(path, metadata.architecture, architecture)
    if not metadata.training.get("optimizer_state", True):
        raise UserError(
            f"{path} was converted from weights alone, so that a training "
            "cannot resume from it: name another --summary_dir, and this "
            "checkpoint by --init_checkpoint"
        )
    if step > config.max_steps:
        raise UserError(
            f"{path} is beyond --max_steps={config.max_steps}: name another "
            "--summary_dir, or more steps"
        )
    checkpoint.load(path, model)
    print(f"Resuming from {path}")
    differences = metadata.architecture.training_differences(architecture)
    # A converted TF1 checkpoint does not tell how it was trained.
    if "converted_from" not in metadata.training:
        differences += [
            (name, metadata.training[name], value)
            for name, value in _training_settings(config).items()
            if name != "max_steps" and metadata.training[name] != value
        ]
    for name, before, now in differences:
        print(f"Note: {name} was {before} and is {now} from here on")
    return step


def _newest_sound(directory):
    """(step, path) of the newest checkpoint that is not damaged, or None."""
    found = checkpoint.find_all(directory)
    for step, path in reversed(found):
        try:
            checkpoint.verify(path)
        except checkpoint.DamagedError as error:
            print(f"Warning: {error}; looking for the one before", flush=True)
        else:
            return step, path
    if found:
        raise UserError(
            f"all checkpoints in {directory} are damaged: name another "
            "--summary_dir to begin anew"
        )
    return None


def _initialize(model, architecture, config):
    """Loads `init_checkpoint`, if there is one; returns the first step.

    Weights, the optimiser's moments and the step are taken, so that training
    goes on as it would have; data set, seed, batch size and the learning
    rate's schedule are those of `config`. From a checkpoint without moments
    only the weights are taken, and the step is 0: Adam corrects its moments
    for the number of steps that they have seen.
    """
    path = config.init_checkpoint
    if path is None:
        return 0
    if tf1_format.is_tf1(path):
        source = tf1_format.Tf1Checkpoint(path)
        source.load(model, architecture)
        step = source.step if source.has_slots else 0
    else:
        metadata = checkpoint.read_metadata(path)
        _require_same_network(path, metadata.architecture, architecture)
        checkpoint.load(path, model)
        step = metadata.step
        if not metadata.training.get("optimizer_state", True):
            step = 0
            model.optimizer.iterations.assign(step)
    if step >= config.max_steps:
        raise UserError(
            f"{path} is at step {step}, which --max_steps="
            f"{config.max_steps} includes: ask for more steps"
        )
    print(f"Starting from {path} at step {step}")
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
        "shift": config.shift,
        "pad": config.pad,
        "distort": config.distort,
        "validate": config.validate,
        "seed": config.seed,
        "batch_size": config.batch_size,
        "max_steps": config.max_steps,
    }


def _fit(model, pipeline, start, directory, architecture, config, stop):
    def save(step):
        metadata = checkpoint.Metadata(
            step, architecture, _training_settings(config)
        )
        checkpoint.save(directory, model, metadata, config.keep)

    writer = SummaryWriter(directory)
    callbacks = [
        _ShowProgress(start, config.max_steps),
        _WriteSummaries(start, writer, config),
        _Save(start, config, save, stop),
        _StartNextMean(start, config.summary_step),
    ]
    if not config.allow_nonfinite:
        # Before anything is written or saved of such a step.
        callbacks.insert(
            0, _RequireFiniteLoss(start, directory, pipeline, config)
        )
    if architecture.hparams.verbose:
        callbacks.append(
            _WriteVerboseSummaries(start, writer, pipeline, config)
        )
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

    def __init__(self, start, writer, config):
        super().__init__(start)
        self._writer = writer
        self._every = config.summary_step
        self._batch_size = config.batch_size

    def on_step(self, step, logs):
        if step % self._every == 0:
            self._writer.scalars(training_scalars(logs, self._batch_size), step)


class _WriteVerboseSummaries(_StepCallback):
    """Writes weights, activations and reconstructions now and then."""

    def __init__(self, start, writer, pipeline, config):
        super().__init__(start)
        self._writer = writer
        self._pipeline = pipeline
        self._config = config
        self._every = VERBOSE_EVERY * config.summary_step

    def on_step(self, step, logs):
        if step % self._every:
            return
        # The batch of this step once more: it depends on the step alone.
        ((x, y),) = self._pipeline.training_batches(
            self._config.batch_size, self._config.seed, step - 1, step
        )
        self._writer.weights(self.model, step)
        self._writer.activations(self.model, x, step)
        self._writer.reconstructions(self.model, x, y, step)


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
    """Calls `save(step)` every `save_step` steps, at the last, and to stop."""

    def __init__(self, start, config, save, stop):
        super().__init__(start)
        self._max_steps = config.max_steps
        self._every = config.save_step
        self._save = save
        self._stop = stop

    def on_step(self, step, logs):
        stopping = self._stop.number is not None
        if stopping or step % self._every == 0 or step == self._max_steps:
            # Asking for the model brings its weights up to date on backends
            # that keep them elsewhere during `fit`.
            self.model.stop_training = stopping
            self._save(step)


class _RequireFiniteLoss(_StepCallback):
    """Raises UserError at the first step whose loss is infinite or NaN."""

    def __init__(self, start, directory, pipeline, config):
        super().__init__(start)
        self._directory = directory
        self._pipeline = pipeline
        self._config = config

    def on_step(self, step, logs):
        if math.isfinite(logs["loss"]):
            return
        examples = self._pipeline.training_indices(
            step - 1, self._config.batch_size, self._config.seed
        ).numpy()
        found = checkpoint.find_all(self._directory)
        last = found[-1][1] if found else "none yet"
        raise UserError(
            f"the loss is {logs['loss']} at step {step}, which is not saved. "
            f"Training images of its batch: {', '.join(map(str, examples))}. "
            f"Last checkpoint: {last}. A smaller learning_rate may help; "
            "--allow_nonfinite goes on regardless."
        )


class _StartNextMean(_StepCallback):
    """Begins new running means after each summary; must come last."""

    def __init__(self, start, every):
        super().__init__(start)
        self._every = every

    def on_step(self, step, logs):
        if step % self._every == 0:
            self.model.reset_metrics()
