"""Hyper-parameters that all models share, and the override string."""

import dataclasses
import inspect
import re
import typing
from typing import ClassVar

from absl.flags import BooleanParser

from common.errors import UserError
from common.flags import field, flag_specs, require_known
from layers.losses import CLASSIFICATION_LOSSES, RECONSTRUCTION_WEIGHT
from models.optimizer import OPTIMIZERS

# Names of hyper-parameters that differ from those of arguments.
_ARGUMENTS = {"routing": "num_routing"}
_SIZES = {"at_least": 1, "at_most": 10**5}
# By the type of an argument.
_BOUNDS = {bool: {}, str: {}, int: _SIZES, float: {"above": 0}}
# Each iteration and each layer adds operations to the graph.
_LOOPS = ("branches", "convolutions", "depth", "routing")


@dataclasses.dataclass(frozen=True)
class BaseHParams:
    """Hyper-parameters of every model; each model adds its own.

    Attributes:
      PRESETS: dict from name to a dict of values, for preset=NAME.
      UNUSED: names of the reference's hyper-parameters that this model
        ignores.
      loss_type: name of the classification loss; a subclass may make it a
        field. None: cross-entropy; the output `logits` must be probabilities.
      architecture: function of `layers.networks`, see `arguments_of`, or None.
    """

    PRESETS: ClassVar = {}
    UNUSED: ClassVar = ()
    loss_type: ClassVar = None
    architecture: ClassVar = None

    decay_rate: float = field(
        0.96, "factor of the learning rate per `decay_steps` steps", above=0
    )
    decay_steps: int = field(2000, "steps for each `decay_rate`", at_least=1)
    ema: float = field(
        0.0,
        "momentum, such as 0.999, of a moving average of the weights. "
        "Evaluations, predictions and exports use this average. 0: no average",
        at_least=0,
        below=1,
    )
    learning_rate: float = field(0.001, "learning rate at step 0", above=0)
    optimizer: str = field(
        "adam",
        "adam, as in the reference, or muon: Muon for the kernels of "
        "convolutions and capsules (three or more axes), Adam for the others",
        choices=tuple(OPTIMIZERS),
    )
    schedule: str = field(
        "exponential",
        "learning rate: exponential decays by decay_rate each decay_steps down "
        "to a floor, as in the reference; cosine and linear fall to 0",
        choices=("exponential", "cosine", "linear"),
    )
    verbose: bool = field(
        False, "also write summaries of weights, activations, reconstructions"
    )

    def __post_init__(self):
        for name, spec in flag_specs(self).items():
            value = getattr(self, name)
            if not spec.allows(value):
                raise UserError(f"{name}={value} must be {spec.allowed}")

    def check_initial_weights(self):
        """Raises UserError if a file of initial weights is missing."""

    def options(self):
        """The keyword arguments of `architecture`."""
        names = inspect.signature(self.architecture).parameters
        values = {_ARGUMENTS.get(k, k): v for k, v in vars(self).items()}
        return {name: values[name] for name in names if name in values}


def arguments_of(architecture, **specs):
    """Makes a dataclass of a class, with the arguments of a network as fields.

    `architecture` is a function of `layers.networks`. An argument becomes a
    hyper-parameter with its default, its choices, and the text of the docstring
    unless the class or a base class has a field of this name. `specs` are by
    name further arguments of `network`.
    """
    _, _, section = inspect.getdoc(architecture).partition("Args:\n")
    texts = {}
    for entry in re.split(r"\n  (?=\w)", f"\n{section}"):
        name, _, text = " ".join(entry.split()).partition(": ")
        texts[name] = text.partition(", ")[2].removesuffix(".")

    def decorate(cls):
        cls.architecture = staticmethod(architecture)
        names = {argument: name for name, argument in _ARGUMENTS.items()}
        parameters = inspect.signature(architecture).parameters
        for argument, found in parameters.items():
            name, kind = names.get(argument, argument), type(found.default)
            if kind in _BOUNDS and not hasattr(cls, name):
                spec = {"choices": typing.get_args(found.annotation)}
                spec |= _BOUNDS[kind] | specs.get(name, {})
                spec |= {"at_most": 50} if name in _LOOPS else {}
                text = texts[argument]
                setattr(cls, name, network(found.default, text, **spec))
                cls.__annotations__[name] = kind
        return dataclasses.dataclass(frozen=True)(cls)

    return decorate


def network(default, help_text, **spec):
    """A `field` that changes the shapes or the use of weights."""
    return field(default, help_text, **{"defines_network": True, **spec})


def size(default, help_text):
    """A field for a number of channels, units, atoms or iterations."""
    return network(default, help_text, **_SIZES)


def weight_decay(default, weights="kernels"):
    """A dataclass field: the factor of a loss of squared weights."""
    help_text = f"factor of a loss term, half the sum of squared {weights}"
    return field(default, help_text, at_least=0)


def loss_type(default="margin", *choices):
    """A field that names a loss, by default one of the reference's losses."""
    choices = choices or tuple(CLASSIFICATION_LOSSES)
    return field(default, "classification loss", choices=choices)


@dataclasses.dataclass(frozen=True)
class DecoderHParams(BaseHParams):
    """Hyper-parameters of models with a decoder."""

    remake: bool = network(
        True, "reconstruct the image and add the error to the loss"
    )
    remake_weight: float = field(
        RECONSTRUCTION_WEIGHT, "weight of squared pixel errors", at_least=0
    )


def parse_overrides(hparams_class, overrides):
    """Parses a string such as "routing=1,leaky=true" to a dict of typed values.

    preset=NAME sets several values; those given by name have priority.
    """
    specs = flag_specs(hparams_class)
    presets = hparams_class.PRESETS
    names = sorted([*specs, "preset"] if presets else specs)
    preset, values = {}, {}
    for pair in filter(None, map(str.strip, overrides.split(","))):
        name, equals, text = (part.strip() for part in pair.partition("="))
        if not equals:
            raise UserError(f"--hparams_override: {pair!r} is not name=value")
        if name in hparams_class.UNUSED:
            print(f"Note: this model does not use {name}")
            continue
        require_known("hyper-parameter", name, names)
        if name == "preset":
            require_known("preset", text, sorted(presets))
            preset = presets[text]
        else:
            kind = specs[name].kind
            parse = BooleanParser().parse if kind is bool else kind
            try:
                values[name] = parse(text)
            except ValueError:
                message = f"{name}={text} is not of type {kind.__name__}"
                raise UserError(f"hyper-parameter {message}") from None
    return {**preset, **values}
