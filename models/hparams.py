"""Hyper-parameters that all models share, and the override string."""

import dataclasses
import inspect
import typing
from typing import ClassVar

import docstring_parser
from absl.flags import BooleanParser

from common.errors import UserError
from common.flags import field, flag_specs, require_known
from layers.losses import RECONSTRUCTION_WEIGHT
from models.optimizer import OPTIMIZERS

# Names of hyper-parameters that differ from those of arguments.
_ARGUMENTS = {"routing": "num_routing"}
SIZES = {"at_least": 1, "at_most": 10**5}
# By the type of an argument.
_BOUNDS = {bool: {}, str: {}, int: SIZES, float: {"above": 0}}
# Each iteration and each layer adds operations to the graph.
_LOOPS = ("branches", "convolutions", "depth", "routing")


@dataclasses.dataclass(frozen=True)
class BaseHParams:
    """Hyper-parameters of every model; each model adds its own."""

    PRESETS: ClassVar = {}  # from name to a dict of values, for preset=NAME
    UNUSED: ClassVar = ()  # the reference's hyper-parameters to be ignored

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

    def options(self, network):
        """The keyword arguments of a network function."""
        names = inspect.signature(network).parameters
        values = {_ARGUMENTS.get(k, k): v for k, v in vars(self).items()}
        return {name: values[name] for name in names if name in values}


DECODER_FIELDS = {
    "remake": field(
        True,
        "reconstruct the image and add the error to the loss",
        defines_network=True,
    ),
    "remake_weight": field(
        RECONSTRUCTION_WEIGHT, "weight of squared pixel errors", at_least=0
    ),
}


def network_fields(network, bounds):
    """Dict from name to a field, for the arguments of a network function.

    A field has the argument's default, choices, and text in the docstring, and
    the arguments of `field` in `bounds`. Arguments without a default, or with
    None, are no hyper-parameters.
    """
    docstring = docstring_parser.parse(inspect.getdoc(network) or "")
    # "name: type, text."
    texts = {
        parameter.arg_name: " ".join(parameter.description.split())
        .partition(", ")[2]
        .removesuffix(".")
        for parameter in docstring.params
    }
    names = {argument: name for name, argument in _ARGUMENTS.items()}
    fields = {}
    for argument, found in inspect.signature(network).parameters.items():
        name, kind = names.get(argument, argument), type(found.default)
        if found.kind is found.KEYWORD_ONLY and kind in _BOUNDS:
            spec = {"choices": typing.get_args(found.annotation)}
            spec |= {"defines_network": True, **_BOUNDS[kind]}
            spec |= {"at_most": 50} if name in _LOOPS else {}
            spec |= bounds.get(name, {})
            fields[name] = field(found.default, texts.get(argument, ""), **spec)
    return fields


def hparams_class(fields, defaults, **attributes):
    """A subclass of `BaseHParams` with further fields and class attributes.

    `defaults` replace defaults of the fields of the class and its base.
    """
    own = [(name, type(f.default), f) for name, f in fields.items()]
    base = dataclasses.make_dataclass(
        "HParams", own, bases=(BaseHParams,), namespace=attributes, frozen=True
    )
    changed = [(name, type(value), value) for name, value in defaults.items()]
    return dataclasses.make_dataclass(
        "HParams", changed, bases=(base,), frozen=True
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
