"""How a run of a training begins: resumed, from another run, or new."""

import dataclasses
import typing
import uuid

import keras

import resolve
from common.errors import UserError
from input_data import registry
from input_data.pipeline import Pipeline
from layers.backends import cpu_has_bfloat16_products, is_on_cpu
from models.architecture import Architecture
from models.optimizer import compile_model
from models.table import find_model
from training import best
from training.checkpoint import Checkpoint, latest_valid
from training.class_weights import class_weights
from training.resume import initialize, resume


@dataclasses.dataclass
class Run:
    """What a training needs; `step` and `seconds` are those of earlier runs.

    Its checkpoints store `recorded` (see `resolve`) and the `id` of a training.
    """

    config: typing.Any
    recorded: dict
    pipeline: Pipeline
    architecture: Architecture
    model: keras.Model
    step: int = 0
    seconds: float = 0.0
    id: str = dataclasses.field(default_factory=lambda: uuid.uuid4().hex)
    latest: Checkpoint | None = None

    def checkpoint(self, step, seconds):
        """The `Checkpoint` of a step, which is not saved yet."""
        spec = self.pipeline.spec
        run_settings = {
            **self.recorded,
            **spec.settings,
            **spec.split_fingerprints,
            "id": self.id,
            "num_images": spec.num_images,
            "seconds": seconds,
        }
        return Checkpoint(
            step, self.architecture, run_settings, spec.class_names
        )


def start(config, strategy, directory):
    """Loads data, builds the network and finds the first step: a `Run`.

    Checkpoints are in the folder `directory`. Raises UserError if a checkpoint
    there, or --init_checkpoint, does not fit the settings or the data.
    """
    latest = latest_valid(directory, config.model, quarantine=strategy.is_first)
    given = resolve.inherit(config, latest) if latest else config
    config = resolve.with_defaults(given)
    if config.eval_every and strategy.count > 1:
        raise UserError("--eval_every is for one device")
    if config.batch_size % strategy.count:
        raise UserError(
            f"--batch_size={config.batch_size} cannot be split over "
            f"{strategy.count} devices"
        )
    row = find_model(config.model)
    if row.pretrained and not (latest or config.init_checkpoint):
        # Before the images, whose reading may take long.
        hparams = Architecture.from_config(config, None, 1).hparams
        row.classifier.check_initial_weights(hparams)
    pipeline = registry.load(config, train=True)
    spec = pipeline.spec
    config = resolve.with_steps(config, spec.num_images)
    recorded = {**resolve.recorded(given), "max_steps": config.max_steps}
    architecture = Architecture.from_config(
        config, spec.shape, spec.num_targets
    )
    print(
        f"Training {config.model} on {config.dataset}: {spec.num_images} "
        f"images of {spec.shape.height}x{spec.shape.width}x{spec.shape.depth}"
    )
    if given.epochs:
        print(f"{given.epochs} epochs are {config.max_steps} steps")
    weights = None
    if config.class_weight:
        weights = class_weights(config.class_weight, pipeline)
    elif not latest:
        _warn_if_unequal(pipeline)
    is_bfloat16 = config.dtype_policy == "mixed_bfloat16"
    if is_bfloat16 and is_on_cpu() and not cpu_has_bfloat16_products():
        print(
            "Note: --dtype_policy=float32 can be much faster on CPUs "
            "without bfloat16 instructions"
        )
    with strategy.scope():
        # Weights, their gradients and Adam's moments.
        model = architecture.build(seed=config.seed, copies=4)
        model.class_weights = weights
        run = Run(config, recorded, pipeline, architecture, model)
        if latest:  # 1. Resume the training of this folder.
            compile_model(model, config.max_steps)
            resume(run, latest)
        elif config.init_checkpoint:  # 2. Start from another training.
            initialize(run)
        else:  # 3. Start with new weights.
            if row.pretrained:
                model.load_initial_weights()
            compile_model(model, config.max_steps)
    if (config.validate or latest) and strategy.is_first:
        best.forget_after(directory, run.step)
    return run


def _warn_if_unequal(pipeline):
    """Warns if a class has five times the images of another with images."""
    if not pipeline.has_labels_in_memory:
        return  # reading them may take long
    counts = zip(pipeline.class_counts(), pipeline.spec.names, strict=True)
    counts = sorted(pair for pair in counts if pair[0])
    if counts and counts[-1][0] > 5 * counts[0][0]:
        (least, rare), *_, (most, usual) = counts
        print(
            f"Warning: {most} training images of {usual}, {least} of {rare}; "
            "--class_weight=balanced gives all classes the same total weight"
        )
