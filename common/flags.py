"""Dataclass fields that define flags, hyper-parameters and their tables."""

import contextlib
import dataclasses
import difflib
import importlib.util
import os
import re
import sys
import typing

from absl import app, flags

from common.errors import UserError, exit_on_user_error, shell_command

# Flags belong to the command that defines them, for its --help.
flags.disclaim_key_flags()

_DEFINE = {
    bool: flags.DEFINE_bool,
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    str: flags.DEFINE_string,
}
_AS_TEXT = flags.ArgumentParser(), flags.ArgumentSerializer()
# Bounds of numbers without others: JAX counts in int32, layers use float32.
_AT_MOST = {int: 2**31 - 1, float: 3e38}
# For flags that users of Keras and PyTorch try.
_HINTS = {
    "learning_rate": "experiment.py has --hparams_override=learning_rate=VALUE",
    "lr": "experiment.py has --hparams_override=learning_rate=VALUE",
}


@dataclasses.dataclass(frozen=True)
class FlagSpec:
    """Metadata of a field: help, bounds, type and default.

    `help` ends with "Default: ..." if the default depends on other settings.
    `kind` is the type of values other than None. A flag with `merges` has the
    form name=value,name=value and can be repeated. A network must have the same
    value as its checkpoint if `defines_network` is true.
    """

    help: str
    at_least: float | None = None
    at_most: float | None = None
    above: float | None = None
    below: float | None = None
    choices: tuple = ()
    pattern: str | None = None
    merges: bool = False
    defines_network: bool = False
    kind: typing.Any = None
    default: typing.Any = None

    def of_field(self, field):
        """The `FlagSpec` with the type, bound and default of a field."""
        found = {"kind": (typing.get_args(field.type) or (field.type,))[0]}
        if not (self.at_most or self.below or self.choices):
            found["at_most"] = _AT_MOST.get(found["kind"])
        return dataclasses.replace(self, default=field.default, **found)

    def allows(self, value):
        """Whether a value is allowed; None always is."""
        return value is None or bool(
            (self.at_least is None or value >= self.at_least)
            and (self.at_most is None or value <= self.at_most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
            and (not self.choices or value in self.choices)
            and (self.pattern is None or re.fullmatch(self.pattern, value))
        )

    @property
    def allowed(self):
        """Allowed values, such as "at least 1", or "" if all are allowed."""
        rules = {
            "at least": self.at_least,
            "greater than": self.above,
            "at most": self.at_most,
            "less than": self.below,
            "one of": ", ".join(map(str, self.choices)),
            "of the form": self.pattern,
        }
        return " and ".join(
            f"{words} {rule}"
            for words, rule in rules.items()
            if rule not in (None, "")
        )


def field(default, help_text, **spec):
    """A dataclass field with the metadata `FlagSpec(help_text, **spec)`."""
    return dataclasses.field(
        default=default, metadata={"spec": FlagSpec(help_text, **spec)}
    )


def flag_specs(settings):
    """Dict from field name to `FlagSpec`, for a dataclass or an instance.

    A subclass can override only a field's default, as by `size: int = 3`.
    """
    cls = settings if isinstance(settings, type) else type(settings)
    specs = {}
    for base in filter(dataclasses.is_dataclass, reversed(cls.__mro__)):
        for f in dataclasses.fields(base):
            spec = f.metadata.get("spec", specs.get(f.name))
            if spec is not None:
                specs[f.name] = spec.of_field(f)
    return specs


def require_known(kind, name, names):
    """Raises UserError, "unknown `kind` ...", if `name` is not in `names`."""
    if name not in names:
        near = difflib.get_close_matches(name, list(names), n=1)
        suggestion = f" (did you mean {near[0]}?)" if near else ""
        raise UserError(
            f"unknown {kind} {name!r}{suggestion}; valid names: "
            f"{', '.join(names)}"
        )


def is_external(name):
    """Whether a name has the form MODULE:NAME."""
    return ":" in (name or "")


def import_named(flag, name):
    """Imports the object MODULE:NAME, the value `name` of `flag`."""
    module, _, attribute = name.partition(":")
    if not all(map(str.isidentifier, module.split("."))):
        raise UserError(f"{flag}={name} is not MODULE:NAME")
    root = module.partition(".")[0]
    if root not in sys.modules and importlib.util.find_spec(root) is None:
        # The last place: no file there then hides a module of this project.
        sys.path.append(os.getcwd())
    try:
        found = getattr(importlib.import_module(module), attribute, None)
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):
            raise  # a module that the user's own imports
        raise UserError(
            f"{flag}={name}: {error}; start in the folder of {module}, or put "
            "the folder on PYTHONPATH"
        ) from error
    if found is None:
        raise UserError(f"{flag}={name}: module {module} has no {attribute}")
    return found


class _MergedFlag(flags.Flag):
    """A flag with parts name=value; repeated ones add or replace parts."""

    def parse(self, argument):
        if self.present:
            parts = f"{self.value},{argument}".split(",")
            parts = {part.partition("=")[0].strip(): part for part in parts}
            argument = ",".join(parts.values())
        super().parse(argument)


def define(settings_class, names=None, flag_values=flags.FLAGS, repeats=False):
    """Defines flags, repeatable if `repeats`, for all fields or for `names`."""
    options = {"flag_values": flag_values}
    for name, spec in flag_specs(settings_class).items():
        if names is None or name in names:
            text = spec.help
            if spec.allowed and not spec.pattern:
                text += f" ({spec.allowed})"
            given = name, spec.default, text
            if spec.merges:
                flags.DEFINE_flag(_MergedFlag(*_AS_TEXT, *given), **options)
            else:
                define_flag = _DEFINE[spec.kind]
                define_flag(*given, **options, allow_overwrite=repeats)
            message = f"must be {spec.allowed}"
            flags.register_validator(name, spec.allows, message, **options)


def settings_of(settings_class, flag_values=flags.FLAGS, **others):
    """An instance with the parsed flags' values; `others` override them."""
    given = {*flag_values} & flag_specs(settings_class).keys()
    values = {name: flag_values[name].value for name in given}
    return settings_class(**values | others)


def parse(settings_class, arguments):
    """Parses arguments into settings; of repeated flags, the last counts."""
    flag_values = flags.FlagValues()
    define(settings_class, flag_values=flag_values, repeats=True)
    _parse(flag_values, ["", *arguments])
    return settings_of(settings_class, flag_values)


def _parse(flag_values, argv, takes_arguments=False):
    try:
        words = flag_values(argv)
    except flags.Error as error:
        name = getattr(error, "flagname", "").replace("-", "_")
        hint = _HINTS.get(name, "--help lists all flags")
        if takes_arguments:
            hint += "; names of files that begin with - follow --"
        raise UserError(f"{error}; {hint}") from None
    for name in flag_values:
        flag = flag_values[name]
        is_empty = flag.value in ("", [], [""]) and flag.value != flag.default
        if flag.present and is_empty:
            raise UserError(f"--{name} is empty: is a variable not set?")
    if "" in words[1:]:
        raise UserError("an argument is empty: is a variable not set?")
    if words[1:] and not takes_arguments:
        raise UserError(f"not a flag: {' '.join(words[1:])}")
    return words


def arguments(settings, names=None):
    """List of --name=value of non-default settings; `names` limits the list."""
    return [
        f"--{name}={getattr(settings, name)}"
        for name, spec in flag_specs(settings).items()
        if (names is None or name in names)
        and getattr(settings, name) != spec.default
    ]


def command_line(settings, names=None):
    """The `arguments` as one line for a shell."""
    return shell_command(arguments(settings, names))


def run(main, takes_arguments=False):
    """Parses the flags and runs a command; see `exit_on_user_error`.

    `main` gets a list of the arguments, empty unless `takes_arguments`.
    """
    command = os.path.basename(sys.argv[0])
    for name, mode in ("stdin", "r"), ("stdout", "w"), ("stderr", "w"):
        if getattr(sys, name) is None:  # closed: a file would get its number
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115
    with contextlib.suppress(AttributeError):  # notebooks
        sys.stdout.reconfigure(errors="backslashreplace")  # odd file names
    flags.DEFINE_bool("debug", False, "Whether errors show their traceback.")

    def parse_flags(argv):
        return _parse(flags.FLAGS, argv, takes_arguments)

    def is_debug():
        return flags.FLAGS.is_parsed() and flags.FLAGS.debug

    try:
        with exit_on_user_error(command, is_debug):
            app.run(lambda argv: main(argv[1:]), flags_parser=parse_flags)
    finally:  # a notebook may run the command again
        for flag in flags.FLAGS.get_flags_for_module(sys.argv[0]):
            delattr(flags.FLAGS, flag.name)
