"""What compare.py is asked for, and the training that each run is."""

import dataclasses
import re
import shlex

from absl import flags as absl_flags

from input_data.options import Options
from models.registry import MODELS
from old import flags
from old.errors import UserError
from old.fields import MOST_STEPS, field, meanings, require_known
from old.text import shortened
from training.config import Config

# In --settings: for every model.
ALL_MODELS = "all"


@dataclasses.dataclass(frozen=True)
class Settings(Options):
    """The flags of compare.py: those of the data, and these."""

    minutes: float | None = field(
        None,
        "Budget: minutes of training for each run. They become steps by the "
        "speed of each model, which is measured first.",
        at_least=0.001,
        at_most=10**6,
    )
    models: str | None = field(
        None,
        "What to compare, separated by commas: models by their names, and "
        "MODEL-LABEL, a model with the flags that --settings gives this name.",
        default_text="all, and all that --settings names",
    )
    output_dir: str | None = field(
        None,
        "Folder for the comparison: comparison.json, two pictures, and a "
        "folder for each run.",
    )
    points: int = field(
        5,
        "Checkpoints of each run that are evaluated, the last included: "
        "points of the curve of errors.",
        at_least=2,
        at_most=1000,
    )
    seeds: int = field(
        1,
        "Runs of each model, with the seeds --seed, --seed + 1, and so on.",
        at_least=1,
        at_most=10**5,
    )
    steps: int | None = field(
        None,
        "Budget: training steps of each run.",
        at_least=1,
        at_most=MOST_STEPS,
    )

    def names(self, own):
        """The names of what is compared, in the order of the table.

        Args:
          own: dict, what `own_flags` gives.

        Raises:
          UserError: for a name that is unknown, or if there is none.
        """
        if self.models is None:
            given = (name for name in own if name != ALL_MODELS)
            return list(dict.fromkeys([*sorted(MODELS), *given]))
        names = list(dict.fromkeys(filter(None, self.models.split(","))))
        for name in names:
            if model_of(name) != name and name not in own:
                raise UserError(
                    f"--models={self.models}: --settings does not say what "
                    f"{name} is, such as --settings='{name} --batch_size=64'"
                )
        if not names:
            raise UserError(
                f"--models={self.models} names none; valid names: "
                f"{', '.join(sorted(MODELS))}"
            )
        return names

    def require_complete(self):
        """Raises UserError unless there are a folder and one budget."""
        if not self.output_dir:
            raise UserError(
                "--output_dir is required: the folder for the comparison, for "
                "instance --output_dir=/tmp/comparison"
            )
        if (self.minutes is None) == (self.steps is None):
            raise UserError(
                "give one budget for each run: either --minutes or --steps"
            )
        last = self.seed + self.seeds - 1
        *_, meaning = meanings(Options)["seed"]
        if not meaning.allows(last):
            raise UserError(
                f"--seed={self.seed} --seeds={self.seeds}: the last seed, "
                f"{last}, must be {meaning.allowed}"
            )


def model_of(name):
    """The model of MODEL or MODEL-LABEL.

    Raises:
      UserError: for a model that is unknown, or a label that would not do as
        part of a folder's name.
    """
    if name in MODELS:
        return name
    model, hyphen, label = name.partition("-")
    require_known("model", model, sorted(MODELS))
    if hyphen and not re.fullmatch(r"[a-zA-Z0-9._=+-]{1,60}", label):
        raise UserError(
            f"{shortened(name)}: a label is of up to 60 letters, digits and "
            ". _ = + -"
        )
    return model


def own_flags(lines):
    """The flags of each model that --settings gives.

    Args:
      lines: list of strings, a model's name, one with a label, or "all", then
        flags of experiment.py.

    Returns:
      dict from name to list of flags, in the order in which they were given.

    Raises:
      UserError: for a name that is unknown.
    """
    found = {}
    for line in lines:
        try:
            name, *arguments = shlex.split(line)
        except ValueError as error:
            raise UserError(
                f"--settings={line} is not a model's name and flags: {error}"
            ) from None
        if name != ALL_MODELS:
            model_of(name)
        found.setdefault(name, []).extend(arguments)
    return found


def training(settings, name, own):
    """The training of a model, without its folder, steps and seed.

    Args:
      settings: `Settings`.
      name: string, the model, or one with a label.
      own: dict, what `own_flags` gives.

    Returns:
      `Config`.

    Raises:
      UserError: for flags that are wrong, or not for single models.
    """
    from checkpoints.architecture import Architecture  # imports TensorFlow

    common = Config(**{n: getattr(settings, n) for n in meanings(Options)})
    arguments = shlex.split(flags.command_line(common))
    given = [*own.get(ALL_MODELS, ()), *own.get(name, ())]
    try:
        config = flags.parse(Config, [*arguments, *given])
    except absl_flags.Error as error:
        raise UserError(f"--settings of {name}: {error}") from None
    for flag in _OF_THE_COMPARISON:
        if getattr(config, flag) != getattr(common, flag):
            raise UserError(
                f"--settings of {name}: --{flag} is not for single models"
            )
    model = model_of(name)
    try:
        Architecture.from_strings(model, None, None, config.hparams_override)
    except UserError as error:
        raise error.of(name) from None
    return dataclasses.replace(config, model=model)


# What a comparison decides, or all of its models must have in common.
_OF_THE_COMPARISON = (
    *(n for n in meanings(Options) if n not in ("augment", "crops", "shift")),
    *("checkpoint", "eval_every", "init_checkpoint", "init_weights_only"),
    *("keep", "max_steps", "model", "num_processes", "num_trials"),
    *("save_step", "summary_dir", "summary_step", "train"),
)
