"""The flags of experiment.py, and which settings a checkpoint supplies."""

import dataclasses
import pathlib

from common import flags
from common.errors import UserError, shell_command
from common.flags import field, is_external
from input_data import registry

# Models have the names of the networks' files: Keras is not imported for them.
MODEL_NAMES = sorted(
    path.stem
    for path in pathlib.Path(__file__).parent.glob("layers/networks/[a-z]*.py")
    if path.stem != "base" and not path.stem.endswith("_test")
)
# Images in an evaluation batch, as in the reference.
EVAL_BATCH_SIZE = 100


def _count(default, help_text, at_most=None):
    return field(default, help_text, at_least=1, at_most=at_most)


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """The settings that describe the data; `resolve` replaces None."""

    augment: bool = field(
        False,
        "Whether to augment training images of one object as Efficient-CapsNet "
        "does: half are rotated by up to 30 degrees; all are moved, narrowed "
        "by up to a quarter and get a black 4x4 square. --shift defaults to 0.",
    )
    color: bool | None = field(
        None,
        "With --dataset=images: whether to keep colors; if not, images become "
        "gray. Default: the checkpoint's, else false.",
    )
    crop_area: float = field(
        1.0,
        "If below 1, training uses random crops with at least this share of an "
        "image's area, resized to the image's size. Not for two targets.",
        above=0,
        at_most=1,
    )
    crops: int = field(
        1,
        "Crops of a test image of cifar10 or norb. 13 averages the activations "
        "of classes over the central crop and 12 others (Hinton et al. 2018).",
        choices=(1, 13),
    )
    data_dir: str | None = field(
        None,
        "Folder with the files of the data set. With --num_targets=2 it can be "
        "PREFIX.tfrecords@10, which names 10 record files of pairs.",
    )
    dataset: str | None = field(
        None,
        f"Data set: {', '.join(registry.DATASETS)}, tfds:NAME of TensorFlow "
        "Datasets, or MODULE:FUNCTION of your own (docs/architecture.md). "
        "--dataset=images reads a folder with a sub-folder for each class. "
        "Default: the checkpoint's, else mnist with --data_dir, else digits.",
    )
    distort: bool | None = field(
        None,
        "Whether to cut 4 rows and 4 columns off digits: evaluation keeps the "
        "center; training keeps a random part, rotated by up to 15 degrees. "
        "Default: the checkpoint's, else false.",
    )
    eval_size: int = _count(
        10000,
        "Number of examples to evaluate. If there are fewer images or records, "
        "all are evaluated; pairs made on the fly have no limit.",
    )
    flip: bool = field(
        False,
        "Whether to mirror half of the training images. Not for two targets.",
    )
    image_size: int | None = _count(
        None,
        "With --dataset=images or tfds:NAME: resize images to this height and "
        "width. Default: the checkpoint's, else the common size of all images.",
        at_most=10_000,
    )
    num_targets: int | None = field(
        None,
        "Objects in each image. Default: 1; in evaluation the checkpoint's.",
        choices=(1, 2),
    )
    pad: int | None = field(
        None,
        "Width of the black border to add to images of digits, in pixels. "
        "Default: the checkpoint's, else 4 with two targets, else 0.",
        at_least=0,
        at_most=1000,
    )
    pairs: str = field(
        "overlap",
        "With --num_targets=2, how two objects share an image: overlapping as "
        "in MultiMNIST or, for evaluation, one below or beside the other.",
        choices=("overlap", "below", "beside"),
    )
    resize: str | None = field(
        None,
        "How --image_size treats images that are not square: pad with black, "
        "crop the center, or stretch. Default: the checkpoint's, else pad.",
        choices=("pad", "crop", "stretch"),
    )
    seed: int = field(
        0,
        "Seed of initial weights, batches, pairs and splits of image folders.",
        at_least=0,
        at_most=2**32 - 1,
    )
    shift: int | None = field(
        None,
        "Largest random shift of training images along each axis, in pixels; "
        "it is in the names of record files of single digits. Default: 4 with "
        "two targets, 2 for digits, mnist and fashion_mnist, else 0.",
        at_least=0,
        at_most=1000,
    )
    validate: bool = field(
        False,
        "Whether to hold out a part of the training images: training omits "
        "this part, and evaluation uses only this part.",
    )
    viewpoints: str | None = field(
        None,
        "With --dataset=norb: azimuth or elevation trains on a familiar third "
        "of these angles and tests on the others; azimuth-familiar or "
        "elevation-familiar tests on familiar ones. Default: the checkpoint's, "
        "else all viewpoints.",
        pattern="(azimuth|elevation)(-familiar)?",
    )


DATA_FLAGS = tuple(flags.flag_specs(DataConfig))
# The others are for training images alone.
EVALUATION_FLAGS = tuple({*DATA_FLAGS} - {"crop_area", "flip"})


@dataclasses.dataclass(frozen=True)
class Config(DataConfig):
    """The settings of a training or an evaluation."""

    # Model.
    model: str | None = field(
        None,
        f"Model: {', '.join(MODEL_NAMES)}, or MODULE:NAME, a row of your own "
        "in the working directory or on PYTHONPATH, also for its evaluation: "
        "a checkpoint alone imports no code. Default: capsule; in evaluation "
        "the checkpoint's.",
    )
    hparams_override: str = field(
        "",
        "Hyper-parameters as name=value,name=value. preset=NAME sets several "
        "(svhn of capsule, long of homogeneous_capsule, small of "
        "matrix_capsule). Values given by name override the preset's.",
        merges=True,
    )
    dtype_policy: str = field(
        "float32",
        "Precision of the layers. Weights, lengths of capsules, softmax and "
        "losses are always float32.",
        choices=("float32", "mixed_bfloat16", "mixed_float16"),
    )

    # Training.
    train: bool = field(True, "Whether to train; if not, to evaluate.")
    summary_dir: str | None = field(
        None,
        "Folder of the experiment. Its sub-folder train holds checkpoints and "
        "TensorBoard files; test and validation hold files of evaluations.",
    )
    features_dir: str | None = field(
        None,
        "Folder for files of computed features and of decoded images, which "
        "several trainings can share. Default: the --summary_dir.",
    )
    batch_size: int = _count(
        128, "Images in a training batch over all GPUs.", at_most=2**16
    )
    class_weight: str | None = field(
        None,
        "Weights of the classes in the training loss: balanced (the same total "
        "weight for each class) or class=weight,class=weight (1 for the "
        "others), see docs/data.md. Default: no weights.",
    )
    max_steps: int = _count(
        1000, "Training steps in total, including those before a resume."
    )
    epochs: int | None = _count(
        None,
        "Passes over the training images, in place of --max_steps; rounded up "
        "to whole steps.",
        at_most=10_000,
    )
    save_step: int = _count(
        1500, "Steps between checkpoints; the last step is always saved."
    )
    summary_step: int = _count(
        10, "Steps averaged for each point of the training curves."
    )
    keep: int = field(
        0, "Newest checkpoints to keep, and the best; 0 keeps all.", at_least=0
    )
    init_checkpoint: str | None = field(
        None,
        "Checkpoint, also TF1's, or HDF5 weights, to start from: its weights, "
        "step and Adam's moments. Without moments, if only one training has "
        "`ema`, or if other weights are trained, training starts at step 0.",
    )
    init_weights_only: bool = field(
        False, "With --init_checkpoint: take only weights and start at step 0."
    )
    allow_nonfinite: bool = field(
        False, "Whether to continue if the loss or a weight is infinite or NaN."
    )

    # Evaluation.
    checkpoint: str | None = field(
        None,
        "With --train=false: the checkpoint to evaluate; a --summary_dir "
        "stands for its newest one, SUMMARY_DIR/best for the one with the "
        "smallest validation error. For {} see --num_trials. A TF1 checkpoint "
        "is named by the prefix of its files, such as DIR/model.ckpt-1, and "
        "needs --model, --hparams_override and the data flags.",
    )
    num_trials: int = _count(
        1,
        "Size of an ensemble; {} in --checkpoint stands for 0, 1, and so on.",
        at_most=1000,
    )
    eval_all: bool = field(
        False,
        "With --train=false, if no training runs: whether to evaluate every "
        "checkpoint, not only the newest. Pictures show only the newest.",
    )
    eval_every: int | None = _count(
        None,
        "Steps between evaluations during the training, which must run on one "
        "device. An evaluation saves a checkpoint. It uses the validation "
        "images with --validate, else the test images. Default: never.",
    )
    patience: int | None = _count(
        None,
        "With --validate and --eval_every: number of evaluations without a "
        "smaller error after which the training ends. Default: never.",
    )
    eval_interval: float = field(
        60.0,
        "Seconds between checks for a new checkpoint.",
        at_least=0,
        at_most=24 * 3600.0,
    )
    eval_timeout: float = field(
        6 * 3600.0,
        "Seconds without a new checkpoint after which evaluation ends.",
        at_least=0,
    )
    format: str = field(
        "text",
        "With --train=false, what to print: text, or one JSON document per "
        "line, which --summary_dir also stores, with the confusion matrix.",
        choices=("text", "json"),
    )

    # Devices.
    device: str | None = field(
        None,
        "Where to compute: cpu, gpu, or gpu:1 for the second GPU. With "
        "--num_gpus=N: the first of N GPUs, or cpu for N logical CPUs. "
        "Default: the first GPU, else the CPU.",
        pattern="cpu|gpu(:[0-9]+)?",
    )
    num_gpus: int = _count(1, "GPUs of this machine to use.", at_most=1024)
    gpu_memory_limit: int | None = _count(
        None,
        "Largest number of megabytes to use on each GPU, so that two jobs can "
        "share one. Default: no limit.",
    )
    deterministic: bool = field(
        False,
        "Whether runs on GPUs repeat bit for bit, as on CPUs. This is slower.",
    )
    num_processes: int | None = _count(
        None,
        "Processes, each on --num_gpus GPUs, that train together, with JAX. "
        "Default: $KERAS_DISTRIBUTION_NUM_PROCESSES, else 1.",
    )
    process_index: int | None = field(
        None,
        "With --num_processes: index of this process, from 0. "
        "Default: $KERAS_DISTRIBUTION_PROCESS_ID.",
        at_least=0,
    )
    coordinator_address: str | None = field(
        None,
        "With --num_processes: HOST:PORT of the first process. "
        "Default: $KERAS_DISTRIBUTION_JOB_ADDRESSES.",
    )

    def __post_init__(self):
        if not (self.model is None or is_external(self.model)):
            flags.require_known("--model", self.model, MODEL_NAMES)
        if self.dataset is not None:
            registry.find_data_set(self.dataset)

    @property
    def members(self):
        """The checkpoints to evaluate: one, or those of an ensemble."""
        path = self.checkpoint or ""
        if (self.num_trials > 1) != ("{}" in path):
            raise UserError(
                f"--checkpoint={path} with --num_trials={self.num_trials}: an "
                "ensemble needs {} in --checkpoint and at least 2 trials"
            )
        return [path.replace("{}", str(n)) for n in range(self.num_trials)]

    def evaluation_command(self):
        """The command that evaluates the checkpoints of this training."""
        names = {*EVALUATION_FLAGS, "dtype_policy", "summary_dir"} - {"augment"}
        if is_external(self.model):
            names.add("model")
        script = pathlib.Path(__file__).with_name("experiment.py")
        if pathlib.Path.cwd() == script.parent:
            script = script.name
        words = ["--train=false", *flags.arguments(self, names)]
        return shell_command(["python", str(script), *words])
