"""Dataclass fields that say what they are: the one place of a setting.

A field made by `field` carries its meaning and its bounds beside type and
default. Flags, hyper-parameters, their checks, the tables of the
documentation, what a checkpoint records and the printed command of an
evaluation are all made from it.
"""

import dataclasses
import difflib
import math
import re
import types
import typing

from old.errors import UserError
from old.text import shortened

# Of a training, or a part of one: beyond all use, and exact in float64.
MOST_STEPS = 10**12


@dataclasses.dataclass(frozen=True)
class Meaning:
    """What a field says of itself beside its name, type and default.

    Attributes:
      help: string, what it is.
      at_least, at_most: numbers, bounds that are allowed themselves.
      above: number, a bound that is not.
      choices: tuple of the strings that are allowed.
      is_valid: function of a value that says whether it is allowed; None is.
      valid: string, what is allowed, after "must be".
      names: tuple of strings that are meant to be near a wrong value, where
        `is_valid` allows more than `choices` could list.
      default_text: string, the default where it depends.
      recorded: bool, whether a checkpoint records how it was trained with it.
      evaluated: bool, whether evaluating a training takes the same value.
      kept: bool, whether a job that loads a checkpoint takes the recorded
        value where none is given; its default is then None.
      network: bool, whether it is part of what a network computes, so that
        weights trained with one value are not for another.
    """

    help: str
    at_least: float | None = None
    at_most: float | None = None
    above: float | None = None
    choices: tuple = ()
    is_valid: typing.Callable | None = None
    valid: str = ""
    names: tuple = ()
    default_text: str | None = None
    recorded: bool = False
    evaluated: bool = False
    kept: bool = False
    network: bool = False

    @property
    def text(self):
        """What it is, and its default where that depends: for --help."""
        if self.default_text is None:
            return self.help
        return f"{self.help} Default: {self.default_text}."

    def allows(self, value):
        """Whether a value of the field's type is one that will do."""
        if value is None:
            return True
        return (
            (self.at_least is None or value >= self.at_least)
            and (self.at_most is None or value <= self.at_most)
            and (self.above is None or value > self.above)
            and (not self.choices or value in self.choices)
            and (self.is_valid is None or bool(self.is_valid(value)))
        )

    @property
    def allowed(self):
        """What is allowed, after "must be"."""
        if self.valid or self.choices:
            return self.valid or "one of " + ", ".join(self.choices)
        bounds = [
            f"{words} {bound:,}" if abs(bound) > 9999 else f"{words} {bound}"
            for words, bound in (
                ("at least", self.at_least),
                ("greater than", self.above),
                ("at most", self.at_most),
            )
            if bound is not None
        ]
        return " and ".join(bounds)

    def suggestion(self, value):
        """A question for the nearest name that is allowed, or nothing."""
        return did_you_mean(value, self.choices or self.names)


def field(default, help_text, **meaning):
    """A dataclass field with a meaning.

    Args:
      default: its default value.
      help_text: string.
      **meaning: attributes of `Meaning`.
    """
    return dataclasses.field(
        default=default,
        metadata=dict.fromkeys(
            ("meaning", "spec"), Meaning(help_text, **meaning)
        ),
    )


def meanings(settings_class):
    """Dict from name to (type, default, `Meaning`) of a dataclass's fields.

    The type of an optional field is that of its values that are not None.
    """
    return {
        f.name: (_type_of(f), f.default, f.metadata["meaning"])
        for f in dataclasses.fields(settings_class)
        if "meaning" in f.metadata
    }


def _type_of(a_field):
    if isinstance(a_field.type, types.UnionType):
        return next(t for t in a_field.type.__args__ if t is not type(None))
    return a_field.type


def require_allowed(settings, kind):
    """Raises UserError for the first value that is out of range.

    Args:
      settings: a dataclass of `field`s.
      kind: string, what a field is called in the message.
    """
    for name, (_, _, meaning) in meanings(settings).items():
        value = getattr(settings, name)
        if not meaning.allows(value):
            raise UserError(
                f"{kind} {name}={shortened(value)} must be {meaning.allowed}"
                f"{meaning.suggestion(value)}"
            )


def parse(wanted, text):
    """Reads a value: true or false, or numbers in ASCII digits.

    Args:
      wanted: bool, int, float or str.
      text: string.

    Raises:
      ValueError: saying what `text` is not.
    """
    reader, pattern, name = _READERS[wanted]
    if not re.fullmatch(pattern, text.lower(), re.ASCII):
        raise ValueError(f"is not {name}")
    value = reader(text.lower() if wanted is not str else text)
    if wanted is float and not math.isfinite(value):
        raise ValueError(f"is not {name}")
    return value


_READERS = {
    bool: (lambda t: t in ("true", "1"), "true|1|false|0", "true or false"),
    int: (int, r"[+-]?\d{1,30}", "a whole number"),
    float: (float, r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d{1,9})?", "a number"),
    str: (str, r"[\s\S]*", "a word"),
}


def as_text(value):
    """A value as a command line would have it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def did_you_mean(name, names):
    """A question for the nearest of the names; empty if none is near."""
    near = difflib.get_close_matches(str(name)[:100], list(names), n=1)
    return f" (did you mean {near[0]}?)" if near else ""


def require_known(kind, name, names):
    """Raises UserError for a name of some kind that is none of these."""
    if name not in names:
        raise UserError(
            f"unknown {kind} {name!r}{did_you_mean(name, names)}; valid "
            f"names: {', '.join(names)}"
        )
