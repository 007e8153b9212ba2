"""Hyper-parameters: names, defaults, allowed values, override strings."""

import dataclasses
import math

from common.errors import UserError
from layers import CLASSIFICATION_LOSSES


def _positive(value):
    return value > 0


def _at_least_one(value):
    return value >= 1


def _field(default, help_text, is_valid=None, valid=None):
    """A field with its meaning and, where not every value will do, which."""
    return dataclasses.field(
        default=default,
        metadata={"help": help_text, "is_valid": is_valid, "valid": valid},
    )


def _choice(default, help_text, *choices):
    return _field(
        default,
        help_text,
        lambda value: value in choices,
        "one of " + ", ".join(choices),
    )


@dataclasses.dataclass(frozen=True)
class HParams:
    """Hyper-parameters of every model, with the reference's defaults.

    Raises:
      UserError: for a value out of range.
    """

    class_atoms: int = _field(
        16,
        "atoms of a class capsule",
        _at_least_one,
        "at least 1",
    )
    conv_channels: int = _field(
        256,
        "channels of the capsule model's convolution",
        _at_least_one,
        "at least 1",
    )
    decay_rate: float = _field(
        0.96, "learning rate decay factor", _positive, "greater than 0"
    )
    decay_steps: int = _field(
        2000, "steps for one decay factor", _at_least_one, "at least 1"
    )
    leaky: bool = _field(False, "leaky softmax in the routing")
    learning_rate: float = _field(
        0.001, "Adam learning rate at step 0", _positive, "greater than 0"
    )
    loss_type: str = _choice(
        "margin", "classification loss", *CLASSIFICATION_LOSSES
    )
    num_prime_capsules: int = _field(
        32, "types of primary capsules", _at_least_one, "at least 1"
    )
    padding: str = _choice(
        "VALID", "padding of the convolutions", "VALID", "SAME"
    )
    primary_atoms: int = _field(
        8,
        "atoms of a primary capsule",
        _at_least_one,
        "at least 1",
    )
    remake: bool = _field(True, "reconstruct the image, and train on it")
    routing: int = _field(
        3,
        "routing iterations of the last layer",
        _at_least_one,
        "at least 1",
    )
    verbose: bool = _field(False, "more summaries")

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            is_valid = field.metadata["is_valid"]
            if is_valid and not is_valid(value):
                raise UserError(
                    f"hyper-parameter {field.name}={value} must be "
                    f"{field.metadata['valid']}"
                )


# Named sets of values, for preset=name among the overrides.
PRESETS = {
    # The paper's section 7: the smaller network for SVHN.
    "svhn": {
        "conv_channels": 64,
        "num_prime_capsules": 16,
        "primary_atoms": 6,
        "class_atoms": 8,
    },
}


def parse_overrides(overrides):
    """Reads a string such as "routing=1,leaky=true,loss_type=softmax".

    preset=NAME stands for the values of `PRESETS`; a value that is also given
    by its own name goes before the preset's, in whatever order they stand.

    Args:
      overrides: string of comma-separated name=value pairs; may be empty.

    Returns:
      dict from name to value, of the types that `HParams` declares.

    Raises:
      UserError: for an unknown name or preset, a value of the wrong type, a
        name that is given twice, or a pair without "=".
    """
    fields = {field.name: field for field in dataclasses.fields(HParams)}
    values, preset = {}, None
    for pair in filter(None, (p.strip() for p in overrides.split(","))):
        name, equals, text = (part.strip() for part in pair.partition("="))
        if not equals:
            raise UserError(
                f"--hparams_override: {pair!r} is not of the form name=value"
            )
        if name not in (*fields, "preset"):
            raise UserError(
                f"--hparams_override: unknown hyper-parameter {name!r}; valid "
                f"names:\n{_describe_all()}"
            )
        if name in values or (name == "preset" and preset is not None):
            raise UserError(f"--hparams_override: {name} is given twice")
        if name == "preset":
            preset = _parse_preset(text)
        else:
            values[name] = _parse_value(name, text, fields[name].type)
    return {**(preset or {}), **values}


def _describe_all():
    lines = [
        f"  {field.name}={_as_text(field.default)}: {field.metadata['help']}"
        for field in dataclasses.fields(HParams)
    ]
    lines.append(f"  preset: {' or '.join(sorted(PRESETS))}")
    return "\n".join(lines)


def _as_text(value):
    """A value as an override would have it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _parse_preset(name):
    if name not in PRESETS:
        raise UserError(
            f"--hparams_override: unknown preset {name!r}; valid names: "
            f"{', '.join(sorted(PRESETS))}"
        )
    return PRESETS[name]


def _parse_value(name, text, wanted):
    try:
        return _PARSERS[wanted](text)
    except ValueError:
        raise UserError(
            f"--hparams_override: {name}={text} is not {_TYPE_NAMES[wanted]}"
        ) from None


def _parse_bool(text):
    values = {"true": True, "1": True, "false": False, "0": False}
    if text.lower() not in values:
        raise ValueError(text)
    return values[text.lower()]


def _parse_float(text):
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


_PARSERS = {bool: _parse_bool, int: int, float: _parse_float, str: str}
_TYPE_NAMES = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a word",
}
