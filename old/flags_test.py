import dataclasses
import os
import shlex
import subprocess
import sys

import pytest
from absl.flags import Error, FlagValues

from old import flags
from old.fields import field


@dataclasses.dataclass(frozen=True)
class Settings:
    count: int = field(3, "How many.", at_least=1, at_most=9, recorded=True)
    rate: float = field(0.5, "How fast.", at_least=0.0, recorded=True)
    wide: bool = field(False, "Whether it is wide.", recorded=True)
    kind: str = field("a", "Which.", choices=("a", "b"))
    name: str | None = field(
        None,
        "Its name.",
        is_valid=lambda name: name.islower(),
        valid="in small letters",
        recorded=True,
    )
    plain: int = 1  # no flag


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], Settings()),
        (["--count=9", "--rate=2"], Settings(count=9, rate=2.0)),
        (["--wide", "--kind=b"], Settings(wide=True, kind="b")),
        (["--wide=false", "--name", "x y"], Settings(name="x y")),
    ],
)
def test_flags_give_settings(arguments, expected):
    assert flags.parse(Settings, arguments) == expected


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--counts=3", "Unknown command line flag 'counts'. Did you mean"),
        ("--plain=2", "Unknown command line flag 'plain'"),
        ("--count=0", r"--count=0: 0 is not an integer in the range \[1, 9\]"),
        ("--count=many", "--count=many"),
        ("--count=2.5", "--count=2.5"),
        ("--count=٣", "--count=٣: is not a whole number"),
        ("--rate=1_0", "--rate=1_0: is not a number"),
        ("--rate=-1", "--rate=-1: -1.0 is not a non-negative number"),
        ("--wide=perhaps", "--wide=perhaps"),
        ("--kind=c", "--kind=c: value should be one of <a|b>"),
        ("--name=X", "--name=X: must be in small letters"),
        ("--nowide=1", "--nowide=1 does not take an argument"),
        ("count=1", "not a flag: count=1"),
    ],
)
def test_wrong_flags_say_what_would_be_right(argument, message):
    with pytest.raises(Error, match=message):
        flags.parse(Settings, [argument])


def test_messages_are_short_and_have_no_escape_codes():
    with pytest.raises(Error) as caught:
        flags.parse(Settings, [f"--count=\x1b[2J{9 * 'x' * 1000}"])
    assert len(str(caught.value)) < 500
    assert "\x1b" not in str(caught.value)


def test_help_has_each_flag_with_its_meaning():
    flag_values = FlagValues()
    flags.define(Settings, flag_values=flag_values)
    text = flag_values.get_help()
    for line in ("--count: How many.", "<a|b>: Which.", "(default: '3')"):
        assert line in text


def test_a_command_may_have_some_of_the_flags():
    flag_values = FlagValues()
    flags.define(Settings, ["count", "kind"], flag_values)
    assert set(flag_values) - set(FlagValues()) >= {"count", "kind"}
    assert "rate" not in flag_values
    flag_values(["command", "--count=5"])
    settings = flags.settings_of(Settings, flag_values, name="x", plain=2)
    assert settings == Settings(count=5, name="x", plain=2)


def test_a_command_line_has_what_is_not_default_and_is_wanted():
    settings = Settings(count=4, wide=True, kind="b", name="a b's", plain=5)
    line = flags.command_line(settings, lambda meaning: meaning.recorded)
    assert line == "--count=4 --wide=True " + shlex.quote("--name=a b's")
    again = flags.parse(Settings, shlex.split(line))
    assert again == dataclasses.replace(settings, kind="a", plain=1)
    assert flags.command_line(Settings()) == ""


def test_names_of_any_bytes_are_printed_in_a_strict_locale(pytestconfig):
    program = (
        "import sys; from old import flags; "
        "flags.parse_or_explain(['x']); print('caf\\udce9')"
    )
    found = subprocess.check_output(
        [sys.executable, "-c", program],
        cwd=pytestconfig.rootpath,
        env={**os.environ, "PYTHONIOENCODING": "utf-8:strict"},
    )
    assert found == b"caf\xe9\n"
