"""Training: `fit` on the batches of the remaining steps, with resume."""

import contextlib
import dataclasses
import math
import os
import pathlib
import shlex

import keras

import checkpoints
from checkpoints.architecture import Architecture
from devices.parallel import OneDevice
from input_data import registry
from input_data.features import NUM_IMAGES, OF_FILES
from input_data.memory import require_memory
from input_data.pipeline import Pipeline
from layers.utils import is_on_cpu
from models.optimizer import compile_model
from old.durable import make_folder, remove_leftovers
from old.errors import Interrupted, UserError
from old.text import listed
from training import curve
from training.callbacks import (
    RequireFinite,
    Save,
    ShowProgress,
    StartNextMean,
    StopAfterSignal,
    WriteSummaries,
    WriteVerboseSummaries,
)
from training.clock import Clock
from training.config import Config
from training.process import StopSignal, sole_trainer
from training.summaries import SummaryWriter

# At least: the weight, its gradient, Adam's two moments, and as much again for
# half of them; spectra of the kernels of convolutions take more.
_BYTES_PER_WEIGHT = 24
# It and its gradient.
_BYTES_PER_ACTIVATION = 8


def train(config, parallel=None, evaluate=None):
    """Trains to `max_steps`, from the newest checkpoint if there is one.

    Checkpoints and event files go to `<summary_dir>/train`: one checkpoint
    every `save_step` steps and one at the last. SIGTERM, Ctrl-C and a terminal
    that is closed end it after the step, which is saved.

    Args:
      config: `Config`.
      parallel: `parallel.OneDevice`, the default, or one of its subclasses:
        what to compute on.
      evaluate: function of the path of a checkpoint, called after every
        `eval_every` steps and the last, and of one that a training resumes
        from.

    Raises:
      UserError: for settings, data or checkpoints that do not work, and if
        the loss becomes infinite or NaN.
      Interrupted: after a signal.
    """
    config.require_summary_dir()
    parallel = parallel or OneDevice()
    directory = pathlib.Path(config.summary_dir) / "train"
    # First, by which an evaluation sees that it runs: data may take minutes.
    with _holding(directory, parallel):
        job = _prepare(config, parallel, directory)
        with StopSignal() as stop:
            _require_memory_for_weights(job.architecture)
            with job.parallel.building():
                model = job.architecture.build(config.seed)
                _require_memory_for_batch(model, job)
                compile_model(model, config.max_steps)
                start = _resume(job, model)
            saved = checkpoints.path_of(job.directory, start)
            # Its evaluation may have been interrupted.
            if _is_to_evaluate(start, config) and os.path.exists(saved):
                evaluate(saved)
            clock = Clock()
            began = clock.seconds()
            if start < config.max_steps:
                _fit(job, model, start, stop, clock, evaluate)
            seconds = clock.seconds() - began
        step = int(keras.ops.convert_to_numpy(model.optimizer.iterations))
        path = checkpoints.path_of(job.directory, step)
        if stop.number is not None:
            raise Interrupted(
                f"Stopped at step {step}, saved {path}", stop.number
            )
        if config.eval_every and step == config.max_steps:
            evaluate(path)
    if step != config.max_steps:
        raise RuntimeError(f"training ended by itself at step {step}")
    print(f"Trained to step {step}: {path}")
    if step > start:
        rate = (step - start) * config.batch_size / seconds
        print(
            f"{step - start} steps in {seconds:.0f} s, {rate:,.0f} images/s\n"
            f"Curves: tensorboard --logdir={shlex.quote(config.summary_dir)}\n"
            f"Evaluate by: {config.evaluation_command()}"
        )
        if job.pipeline.spec.note is not None:
            print(job.pipeline.spec.note)


@dataclasses.dataclass(frozen=True)
class _Job:
    """What one training is about: settings, data, network and devices."""

    config: Config
    parallel: OneDevice
    pipeline: Pipeline
    architecture: Architecture
    directory: pathlib.Path

    def metadata(self, step):
        """What the checkpoint of a step says of itself."""
        return checkpoints.Metadata(
            step,
            self.architecture,
            {
                **self.config.recorded(),
                **self.pipeline.spec.split_fingerprints,
                NUM_IMAGES: self.pipeline.spec.num_images,
            },
            self.pipeline.spec.class_names,
        )


def _is_to_evaluate(step, config):
    """Whether it is a step to evaluate, but not the last."""
    every = config.eval_every
    return every is not None and step % every == 0 and step < config.max_steps


def _prepare(config, parallel, directory):
    curve.read(directory / curve.FILE)  # lest another file ends the work
    recorded = checkpoints.newest_sound(directory)
    config = config.as_in(recorded.training if recorded else {})
    if config.eval_every and parallel.count > 1:
        raise UserError(
            "--eval_every is for one device: start another process, with "
            "--train=false, to evaluate what several train"
        )
    parallel.require_even_split(config.batch_size)
    pipeline = registry.load(
        config.dataset_name,
        config.split(train=True),
        config,
    )
    if config.pad is None:  # what evaluations and predict.py do as well
        config = dataclasses.replace(config, pad=pipeline.spec.pad)
    architecture = Architecture.from_config(config, pipeline.spec)
    if config.eval_every:  # lest it fail after the work
        registry.load(config.dataset_name, config.split(train=False), config)
        architecture.require_evaluable(config)
    if architecture.hparams.verbose and not parallel.is_alone:
        raise UserError(
            "verbose=true looks into the network of a process that trains by "
            "itself: leave it out with --num_processes"
        )
    print(
        f"Training {architecture.model} on {config.dataset_name}: "
        f"{pipeline.spec.num_images} images"
    )
    return _Job(config, parallel, pipeline, architecture, directory)


def _require_memory_for_weights(architecture):
    """Refuses a network that the program would be killed for."""
    if is_on_cpu():
        count = architecture.num_weights
        require_memory(
            _BYTES_PER_WEIGHT * count,
            f"training {architecture.model} of {count:,} weights",
            "choose smaller hyper-parameters",
        )


def _require_memory_for_batch(model, job):
    """Refuses a batch whose first convolution, if any, is too large alone."""
    convolutions = (
        layer
        for layer in model.layers
        if isinstance(layer, keras.layers.Conv2D)
    )
    first = next(convolutions, None)
    if first is None or not is_on_cpu():
        return
    batch_size, shape = job.config.batch_size, job.architecture.shape
    images = (batch_size, shape.height, shape.width, shape.depth)
    require_memory(
        _BYTES_PER_ACTIVATION * math.prod(first.compute_output_shape(images)),
        f"--batch_size={batch_size} for images of {shape.height}x{shape.width} "
        f"and a first convolution of {first.filters:,} channels",
        "choose a smaller batch, or fewer channels",
    )


@contextlib.contextmanager
def _holding(directory, parallel):
    """Keeps other jobs out of the folder; one process does it for all.

    Where nothing comes of a training it leaves no folder.
    """
    if not parallel.is_first:
        yield
        return
    folders = (directory, *directory.parents)
    made = [folder for folder in folders if not os.path.exists(folder)]
    make_folder(directory)
    with sole_trainer(directory):
        try:
            checkpoints.remove_partial(directory)
            remove_leftovers(directory)
            yield
        except BaseException:
            with contextlib.suppress(OSError):  # one that is not empty
                for folder in made:
                    folder.rmdir()
            raise


def _resume(job, model):
    """Loads the newest sound checkpoint; returns the step to go on from."""
    source = None
    if job.parallel.is_first:
        source = checkpoints.newest(job.directory)
    # Only the first process knows.
    step = job.parallel.largest(source.step if source else -1)
    if step < 0:
        return _initialize(job, model)
    config = job.config
    if source is None:  # in a process that is not the first
        source = checkpoints.open(checkpoints.path_of(job.directory, step))
    _require_same_data_set(source, config)
    source.require_usable(config, job.pipeline)
    if not source.has_slots:
        raise UserError(
            f"{source.path} was converted from weights alone, so that a "
            "training cannot resume from it: name another --summary_dir, and "
            "this checkpoint by --init_checkpoint"
        )
    if step > config.max_steps:
        raise UserError(
            f"{source.path} is beyond --max_steps={config.max_steps}: name "
            "another --summary_dir, or more steps"
        )
    source.load(model, job.architecture)
    print(f"Resuming from {source.path}")
    differences = source.architecture.training_differences(job.architecture)
    # A converted TF1 checkpoint does not tell how it was trained.
    if "converted_from" not in source.training:
        # Only where it is the end of the schedule it changes the steps to come.
        ends = job.architecture.hparams.schedule != "exponential"
        differences += [
            (name, source.training.get(name, value), value)
            for name, value in job.metadata(step).training.items()
            if (ends or name != "max_steps")
            and name != OF_FILES
            and source.training.get(name, value) != value
        ]
    for name, before, now in differences:
        print(f"Note: {name} was {before} and is {now} from here on")
    return step


def _initialize(job, model):
    """Loads `init_checkpoint`, if there is one; returns the first step.

    Weights, the optimiser's moments and the step are taken, so that training
    goes on as it would have; data set, seed, batch size and the learning
    rate's schedule are those of `config`. With `init_weights_only`, and from a
    checkpoint without moments, only the weights are taken, and the step is 0:
    Adam corrects its moments for the number of steps that they have seen.
    """
    config, path = job.config, job.config.init_checkpoint
    if path is None:
        _refuse_tf1(job.directory)
        return 0
    source = checkpoints.open(path)
    source.require_usable(config, job.pipeline)
    source.load(model, job.architecture)
    step = source.step if source.has_slots else 0
    if config.init_weights_only:
        step = 0
        compile_model(model, config.max_steps)  # an optimiser that saw nothing
    model.optimizer.iterations.assign(step)
    if step >= config.max_steps:
        raise UserError(
            f"{path} is at step {step}, which --max_steps="
            f"{config.max_steps} includes: ask for more steps"
        )
    print(f"Starting from {path} at step {step}")
    return step


def _refuse_tf1(directory):
    """Raises UserError where a training of the reference would go on."""
    found = checkpoints.find_tf1(directory)
    if found:
        raise UserError(
            f"{directory} has checkpoints of TF1, {listed(found)}: to go on "
            "from one name it by --init_checkpoint, and another --summary_dir"
        )


def _require_same_data_set(source, config):
    before = source.training.get("dataset")
    if before not in (None, config.dataset_name):
        raise UserError(
            f"{source.path} was trained on {before}, not on "
            f"{config.dataset_name}: go on with {before} by --dataset and "
            "--data_dir, or name another --summary_dir, and "
            f"--init_checkpoint={source.path} to start from these weights"
        )


def _fit(job, model, start, stop, clock, evaluate):
    config = job.config
    batches = job.pipeline.training_batches(
        config.batch_size, config.seed, start, config.max_steps
    )
    with job.pipeline.user_errors():
        model.fit(
            job.parallel.own_part(batches),
            callbacks=_callbacks(job, start, stop, clock, evaluate),
            shuffle=False,  # the pipeline shuffles
            verbose=0,  # ShowProgress shows it
        )


def _callbacks(job, start, stop, clock, evaluate):
    """What happens after a step, in this order."""
    config = job.config

    def save_checkpoint(model, step):
        with job.parallel.by_itself():
            path = checkpoints.save(
                job.directory, model, job.metadata(step), config.keep
            )
        # The last one is evaluated when `fit` has ended.
        if _is_to_evaluate(step, config) and not stop.is_heeded:
            with clock.stopped():
                evaluate(path)

    callbacks = [StopAfterSignal(start, stop, job.parallel)]
    save = Save(start, config, save_checkpoint, stop)
    if not config.allow_nonfinite:
        # In every process, and before anything is written or saved.
        callbacks.append(
            RequireFinite(start, job.directory, job.pipeline, config, save)
        )
    if job.parallel.is_first:
        writer = SummaryWriter(job.directory)
        writer.hparams(job.metadata(start))
        schedule = job.architecture.make_schedule(config.max_steps)
        callbacks += [
            ShowProgress(start, config.max_steps),
            WriteSummaries(start, writer, config, schedule, clock),
            save,
        ]
        if job.architecture.hparams.verbose:
            callbacks.append(
                WriteVerboseSummaries(start, writer, job.pipeline, config)
            )
    # Last: the others read the means.
    return [*callbacks, StartNextMean(start, config.summary_step)]
