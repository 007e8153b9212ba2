"""What a job is asked to do: the command line's flags, frozen."""

import dataclasses

import devices
from input_data.features import OF_FILES
from input_data.options import Options
from models.registry import MODELS
from old.errors import UserError
from old.fields import MOST_STEPS, field, meanings
from old.flags import command_line
from old.text import is_utf8

# Images in an evaluation batch, as in the reference.
EVAL_BATCH_SIZE = 100
# Above it a batch of the smallest images would not fit in memory.
_LARGEST_BATCH = 2**17


@dataclasses.dataclass(frozen=True)
class Config(Options, devices.Settings):
    """The flags of experiment.py: of the data, of devices, and these.

    None stands for "not given": for the data set, the model and the number of
    targets the default then depends on the job.
    """

    allow_nonfinite: bool = field(
        False,
        "Whether training goes on when the loss or a weight becomes infinite "
        "or NaN.",
    )
    batch_size: int = field(
        128,
        "Images in a training batch, split over the GPUs.",
        at_least=1,
        at_most=_LARGEST_BATCH,
        recorded=True,
    )
    checkpoint: str | None = field(
        None,
        "With --train=false: the checkpoint to evaluate once, or the "
        "--summary_dir of a training for its newest. {} in it stands for the "
        "members of an ensemble, see --num_trials. A TF1 checkpoint of "
        "the reference is named by the prefix of its files, such as "
        "DIR/model.ckpt-1; --model, --hparams_override and the data set must "
        "describe its network.",
    )
    dtype_policy: str = field(
        "float32",
        "Precision of the layers' arithmetic. Weights, lengths, softmax and "
        "losses are always float32.",
        choices=("float32", "mixed_bfloat16", "mixed_float16"),
        recorded=True,
        evaluated=True,
    )
    eval_all: bool = field(
        False,
        "With --train=false and no training running: whether to evaluate every "
        "checkpoint that is there, not the newest alone.",
    )
    eval_every: int | None = field(
        None,
        "Steps after which a training on one device also evaluates, on the "
        "held-out images with --validate, else on the test images; so it does "
        "at the last step. Checkpoints are saved at these steps too.",
        at_least=1,
        default_text="never",
    )
    eval_interval: float = field(
        60.0,
        "Seconds between looks for a new checkpoint.",
        at_least=0.0,
    )
    eval_timeout: float = field(
        6 * 3600.0,
        "Seconds after which continuous evaluation ends if no new checkpoint "
        "comes.",
        at_least=0.0,
    )
    format: str = field(
        "text",
        "With --train=false, what to print: text, or json, a document to a "
        "line, which with --summary_dir is also written there, beside a "
        "picture of its confusion matrix.",
        choices=("text", "json"),
    )
    hparams_override: str = field(
        "",
        "Hyper-parameters as name=value,name=value. preset=NAME stands for "
        "a set of them (svhn, of capsule: the paper's smaller network; small, "
        "of matrix_capsule); values given beside it override its own.",
    )
    init_checkpoint: str | None = field(
        None,
        "Checkpoint, also a TF1 one, to start a training from that has none "
        "of its own yet: weights, step and Adam's moments; from one without "
        "moments only the weights, at step 0.",
    )
    init_weights_only: bool = field(
        False,
        "With --init_checkpoint: only the weights, at step 0, for another "
        "data set or schedule.",
    )
    keep: int = field(
        0,
        "How many of the newest checkpoints to keep; 0 keeps all.",
        at_least=0,
    )
    max_steps: int = field(
        1000,
        "Training steps in all, those before a resume included.",
        at_least=1,
        at_most=MOST_STEPS,
        recorded=True,
    )
    model: str | None = field(
        None,
        "Model.",
        choices=tuple(sorted(MODELS)),
        default_text="capsule; in evaluation the checkpoint's",
    )
    num_trials: int = field(
        1,
        "With --train=false: how many checkpoints form an ensemble; the "
        "numbers from 0 take the place of {} in --checkpoint.",
        at_least=1,
        at_most=10**5,
    )
    save_step: int = field(
        1500,
        "Steps from one checkpoint to the next; the last step is always saved.",
        at_least=1,
    )
    summary_dir: str | None = field(
        None,
        "Folder of the experiment: checkpoints and TensorBoard files of "
        "training go to its folder train, those of evaluation to test, on "
        "held-out images to validation.",
        evaluated=True,
        is_valid=is_utf8,
        valid="a name in UTF-8, which TensorBoard needs",
    )
    summary_step: int = field(
        10,
        "Steps from one point of the training curves to the next, each a mean.",
        at_least=1,
    )
    train: bool = field(True, "Whether to train; else to evaluate.")

    def recorded(self):
        """What a checkpoint records of the run beside its architecture."""
        values = {
            name: getattr(self, name)
            for name, (_, _, meaning) in meanings(self).items()
            if meaning.recorded
        }
        # The sets of TFDS that have files of their own, too, are in another
        # order there.
        of_files = self.data_dir is not None
        return {**values, "dataset": self.dataset_name, OF_FILES: of_files}

    @property
    def members(self):
        """The checkpoints of an ensemble: the numbers from 0 in place of {}.

        Raises:
          UserError: if several have no {} to differ by, or one has it.
        """
        if self.num_trials == 1 and "{}" in self.checkpoint:
            raise UserError(
                f"{self.checkpoint} names an ensemble by {{}}: say of how many "
                "checkpoints by --num_trials"
            )
        if self.num_trials > 1 and "{}" not in self.checkpoint:
            raise UserError(
                f"--num_trials={self.num_trials} needs {{}} in "
                f"{self.checkpoint}, where the numbers 0 to "
                f"{self.num_trials - 1} go"
            )
        return [
            self.checkpoint.replace("{}", str(number))
            for number in range(self.num_trials)
        ]

    def evaluation_command(self):
        """The command that evaluates what this job trains."""
        flags = command_line(self, lambda meaning: meaning.evaluated)
        return f"python experiment.py --train=false {flags}"

    def require_summary_dir(self):
        """Raises UserError if there is no folder to write to."""
        if not self.summary_dir:
            raise UserError(
                "--summary_dir is required: the folder for checkpoints and "
                "TensorBoard files, for instance --summary_dir=/tmp/capsules"
            )
