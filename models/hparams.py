"""Hyper-parameters: those that all models share, and override strings."""

import dataclasses
from typing import ClassVar

from layers.losses import CLASSIFICATION_LOSSES, RECONSTRUCTION_WEIGHT
from models.optimizer import OPTIMIZERS
from old.errors import UserError
from old.fields import (
    MOST_STEPS,
    as_text,
    did_you_mean,
    field,
    meanings,
    parse,
    require_allowed,
)
from old.text import shortened

# Of one layer: more would make a graph, or weights, of no use to anybody.
MOST_ITERATIONS = 100
MOST_UNITS = 2**16


@dataclasses.dataclass(frozen=True)
class BaseHParams:
    """What every model has; each model's own class adds what is its own.

    Attributes:
      PRESETS: dict from name to named sets of values, for preset=NAME.
      UNUSED: names of the reference's hyper-parameters that its commands may
        give to this model too, which has no use for them.

    Raises:
      UserError: for a value out of range.
    """

    PRESETS: ClassVar = {}
    UNUSED: ClassVar = ()

    decay_rate: float = field(
        0.96, "factor of schedule=exponential for `decay_steps`", above=0
    )
    decay_steps: int = field(
        2000, "steps for one decay factor", at_least=1, at_most=MOST_STEPS
    )
    learning_rate: float = field(0.001, "learning rate at step 0", above=0)
    optimizer: str = field(
        "adam",
        "adam, as in the reference, or muon: Muon for kernels of three axes "
        "and more, those of convolutions and capsules, Adam for all else",
        choices=tuple(OPTIMIZERS),
    )
    schedule: str = field(
        "exponential",
        "the rate by step: exponential is max(1e-6, learning_rate * "
        "decay_rate^(step / decay_steps)), as in the reference; cosine and "
        "linear fall to 0 at --max_steps",
        choices=("exponential", "cosine", "linear"),
    )
    verbose: bool = field(
        False, "more summaries: weights, activations, reconstructions"
    )

    def __post_init__(self):
        require_allowed(self, "hyper-parameter")


def size(default, help_text, at_most=MOST_UNITS):
    """A field for a number of things that a network has, at least one."""
    return field(default, help_text, at_least=1, at_most=at_most, network=True)


def padding(help_text="padding of the convolutions"):
    """A field for the padding of a network's convolutions."""
    return field("VALID", help_text, choices=("VALID", "SAME"), network=True)


def loss_type():
    """A field for one of the reference's losses."""
    return field(
        "margin", "classification loss", choices=tuple(CLASSIFICATION_LOSSES)
    )


def remake():
    """A field for whether there is a decoder."""
    return field(
        True,
        "reconstruct the image from the class capsule, and train on it",
        network=True,
    )


def remake_weight(
    help_text="what the squared error of a redrawn pixel counts in the loss",
):
    """A field for what redrawing the image counts in the loss."""
    return field(RECONSTRUCTION_WEIGHT, help_text, at_least=0)


def parse_overrides(hparams_class, overrides):
    """Reads a string such as "routing=1,leaky=true,loss_type=softmax".

    preset=NAME stands for a set of values; a value that is also given by its
    own name goes before the preset's, in whatever order they stand.

    Args:
      hparams_class: the model's subclass of `BaseHParams`.
      overrides: string of comma-separated name=value pairs; may be empty.

    Returns:
      dict from name to value, of the types that `hparams_class` declares.

    Raises:
      UserError: for an unknown name or preset, a value of the wrong type, a
        name that is given twice, or a pair without "=".
    """
    known = meanings(hparams_class)
    values, preset, given = {}, {}, set()
    presets = ["preset"] if hparams_class.PRESETS else []
    for pair in filter(None, (p.strip() for p in overrides.split(","))):
        name, equals, text = (part.strip() for part in pair.partition("="))
        if not equals:
            raise UserError(
                f"--hparams_override: '{shortened(pair)}' is not of the form "
                "name=value"
            )
        if name in given:
            raise UserError(f"--hparams_override: {name} is given twice")
        given.add(name)
        if name == "preset" and hparams_class.PRESETS:
            preset = _find_preset(hparams_class, text)
        elif name in hparams_class.UNUSED:
            print(f"Note: this model has no {name}; it is passed over")
        elif name not in known:
            raise UserError(
                "--hparams_override: unknown hyper-parameter "
                f"'{shortened(name)}'"
                f"{did_you_mean(name, [*known, *presets])}; valid names:",
                *_describe_all(hparams_class),
            )
        else:
            try:
                values[name] = parse(known[name][0], text)
            except ValueError as error:
                raise UserError(
                    f"--hparams_override: {name}={shortened(text)} {error}"
                ) from None
    return {**preset, **values}


def _describe_all(hparams_class):
    lines = [
        f"  {name}={as_text(default)}: {meaning.help}"
        for name, (_, default, meaning) in sorted(
            meanings(hparams_class).items()
        )
    ]
    if hparams_class.PRESETS:
        lines.append(f"  preset: {' or '.join(sorted(hparams_class.PRESETS))}")
    return lines


def _find_preset(hparams_class, name):
    if name not in hparams_class.PRESETS:
        raise UserError(
            f"--hparams_override: unknown preset '{shortened(name)}'"
            f"{did_you_mean(name, hparams_class.PRESETS)}; valid names: "
            f"{', '.join(sorted(hparams_class.PRESETS))}"
        )
    return hparams_class.PRESETS[name]
