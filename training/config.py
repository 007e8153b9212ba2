"""What a job is asked to do: the command line's flags, frozen."""

import dataclasses

from common.errors import UserError
from input_data.registry import Options
from input_data.splits import Split

# Images in an evaluation batch, as in the reference.
EVAL_BATCH_SIZE = 100


@dataclasses.dataclass(frozen=True)
class Config:
    """The flags of experiment.py, by their names there, with their defaults.

    None stands for "not given": for the data set, the model and the number of
    targets the default then depends on the job.
    """

    allow_nonfinite: bool = False
    batch_size: int = 128
    checkpoint: str | None = None
    color: bool = False
    coordinator_address: str | None = None
    data_dir: str | None = None
    dataset: str | None = None
    deterministic: bool = False
    device: str | None = None
    distort: bool = False
    dtype_policy: str = "float32"
    eval_interval: float = 60.0
    eval_size: int = 10000
    eval_timeout: float = 6 * 3600.0
    gpu_memory_limit: int | None = None
    hparams_override: str = ""
    image_size: int | None = None
    init_checkpoint: str | None = None
    keep: int = 0
    max_steps: int = 1000
    model: str | None = None
    num_gpus: int = 1
    num_processes: int | None = None
    num_targets: int | None = None
    num_trials: int = 1
    pad: int | None = None
    process_index: int | None = None
    save_step: int = 1500
    seed: int = 0
    shift: int | None = None
    summary_dir: str | None = None
    summary_step: int = 10
    train: bool = True
    validate: bool = False

    @property
    def dataset_name(self):
        """The data set: with files and no name it is MNIST.

        So the reference's commands, where MNIST is the default, work as they
        are; without files it is the embedded digits.
        """
        if self.dataset is not None:
            return self.dataset
        return "digits" if self.data_dir is None else "mnist"

    @property
    def split(self):
        """The `Split` that the job reads."""
        return Split.choose(self.train, self.validate)

    def data_options(self, num_targets):
        """The `registry.Options` of the job."""
        return Options(
            data_dir=self.data_dir,
            num_targets=num_targets,
            seed=self.seed,
            eval_size=self.eval_size,
            shift=self.shift,
            pad=self.pad,
            distort=self.distort,
            image_size=self.image_size,
            color=self.color,
        )

    def evaluation_flags(self):
        """Flags of the command that evaluates what this job trains."""
        names = (
            "summary_dir",
            "data_dir",
            "dataset",
            "color",
            "distort",
            "image_size",
            "pad",
            "seed",
            "validate",
        )
        defaults = {f.name: f.default for f in dataclasses.fields(Config)}
        return ["--train=false"] + [
            f"--{name}={getattr(self, name)}"
            for name in names
            if getattr(self, name) != defaults[name]
        ]

    def require_summary_dir(self):
        """Raises UserError if there is no folder to write to."""
        if not self.summary_dir:
            raise UserError(
                "--summary_dir is required: the folder for checkpoints and "
                "TensorBoard files, for instance --summary_dir=/tmp/capsules"
            )
