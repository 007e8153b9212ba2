"""Flags of the command line, made from the fields of a settings class."""

import shlex
import sys

from absl import flags

from old import fields
from old.fields import did_you_mean, meanings
from old.text import one_line

_LONGEST_MESSAGE = 400
# The flags count as those of the command that defines them, for its --help.
flags.disclaim_key_flags()


def define(settings_class, names=None, flag_values=flags.FLAGS):
    """Defines a flag for each field, with its type, default, help and bounds.

    Args:
      settings_class: dataclass of `fields.field`s.
      names: names of fields, or None for all.
      flag_values: absl's `FlagValues`.
    """
    for name, (kind, default, meaning) in meanings(settings_class).items():
        if names is not None and name not in names:
            continue
        if meaning.choices:
            flag = flags.EnumFlag(name, default, meaning.text, meaning.choices)
            flag.parser = _ChoiceParser(meaning.choices)
            flags.DEFINE_flag(flag, flag_values)
            continue
        if kind in _NUMBERS:
            parser = _NUMBERS[kind](meaning.at_least, meaning.at_most)
            flags.DEFINE(
                parser,
                name,
                default,
                meaning.text,
                flag_values,
                flags.ArgumentSerializer(),
            )
        else:
            of_kind = flags.DEFINE_bool if kind is bool else flags.DEFINE_string
            of_kind(name, default, meaning.text, flag_values=flag_values)
        if meaning.is_valid is not None:
            flags.register_validator(
                name, validator(meaning), flag_values=flag_values
            )


def validator(meaning):
    """A function of a flag's value, for `flags.register_validator`.

    Args:
      meaning: `fields.Meaning`, which says what is allowed.
    """

    def check(value):
        if not meaning.allows(value):
            raise flags.ValidationError(
                f"must be {meaning.allowed}{meaning.suggestion(value)}"
            )
        return True

    return check


class _ChoiceParser(flags.EnumParser):
    """One of several names; a wrong one is told the nearest."""

    def parse(self, argument):
        try:
            return super().parse(argument)
        except ValueError as error:
            suggestion = did_you_mean(argument, self.enum_values)
            raise ValueError(f"{error}{suggestion}") from None


class _WholeNumber(flags.IntegerParser):
    """In ASCII digits alone, as hyper-parameters are."""

    def convert(self, argument):
        return fields.parse(int, str(argument))


class _Number(flags.FloatParser):
    """As `_WholeNumber`."""

    def convert(self, argument):
        return fields.parse(float, str(argument))


_NUMBERS = {int: _WholeNumber, float: _Number}


def define_shown(settings_class, data_class):
    """Defines the flags of a command that shows a checkpoint.

    Args:
      settings_class: dataclass of `fields.field`s.
      data_class: the part of it that describes the data.
    """
    names = (*meanings(data_class), "hparams_override", "model")
    define(settings_class, names)
    flags.DEFINE_string(
        "checkpoint",
        None,
        "The checkpoint, DIR/train/model.ckpt-STEP. A TF1 checkpoint of the "
        "reference is named by the prefix of its files, such as "
        "DIR/model.ckpt-1; --hparams_override and the data set must describe "
        "its network.",
        required=True,
    )


def settings_of(settings_class, flag_values=flags.FLAGS, **others):
    """The settings that the flags give.

    Args:
      settings_class: dataclass of `fields.field`s.
      flag_values: absl's `FlagValues`, parsed.
      **others: values of fields that no flag gives.
    """
    given = {
        name: flag_values[name].value
        for name in meanings(settings_class)
        if name in flag_values
    }
    return settings_class(**{**given, **others})


def parse(settings_class, arguments):
    """The settings that command-line arguments give, without a command.

    Raises:
      absl.flags.Error: for a flag that is unknown, a value out of range, or
        what is no flag.
    """
    flag_values = flags.FlagValues()
    define(settings_class, flag_values=flag_values)
    try:
        _, *others = flag_values(["", *arguments])
    except (flags.Error, ValueError) as error:
        raise flags.Error(as_message(error)) from None
    if others:
        raise flags.Error(as_message(f"not a flag: {' '.join(others)}"))
    return settings_of(settings_class, flag_values)


def parse_or_explain(arguments, known_only=False):
    """For `app.run`: a wrong flag ends the program with a short message.

    With `known_only` flags that nobody defined are among what is left.
    """
    # Names of files of any bytes are printed as they are.
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="surrogateescape")
    try:
        return flags.FLAGS(arguments, known_only=known_only)
    # A ValueError for --notrain=1.
    except (flags.Error, ValueError) as error:
        _explain(error)


def refuse_arguments(argv):
    """Ends a command that takes flags alone if it was given other words."""
    if len(argv) > 1:
        _explain(f"not a flag: {' '.join(argv[1:])}")


def _explain(error):
    sys.exit(f"{as_message(error)}\nPass --help to see all flags.")


def as_message(error):
    """What absl says of a flag, without all of a long or strange value."""
    return one_line(str(error), _LONGEST_MESSAGE)


def command_line(settings, is_wanted=lambda meaning: True):
    """The flags of a command that gives these settings, those not default.

    Args:
      settings: dataclass of `fields.field`s.
      is_wanted: function of a `Meaning`, which fields to take.

    Returns:
      String, quoted for a shell.
    """
    return shlex.join(
        f"--{name}={getattr(settings, name)}"
        for name, (_, default, meaning) in meanings(settings).items()
        if is_wanted(meaning) and getattr(settings, name) != default
    )
