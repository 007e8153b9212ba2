import dataclasses
import math

import pytest

from old import fields
from old.errors import UserError
from old.fields import field


@dataclasses.dataclass(frozen=True)
class Settings:
    count: int = field(3, "how many", at_least=1, at_most=20_000)
    rate: float | None = field(None, "how fast", above=0)
    kind: str = field("a", "which", choices=("a", "b"))
    even: int = field(
        2, "an even one", is_valid=lambda n: n % 2 == 0, valid="even"
    )
    plain: int = 1  # of the program, not of its users


def test_meanings_are_those_of_fields_with_the_types_of_their_values():
    meanings = fields.meanings(Settings)
    assert {name: m[:2] for name, m in meanings.items()} == {
        "count": (int, 3),
        "rate": (float, None),
        "kind": (str, "a"),
        "even": (int, 2),
    }
    assert meanings["rate"][2].help == "how fast"


def test_what_is_in_range_is_allowed():
    for values in (
        {},
        {"count": 1},
        {"count": 20_000},
        {"rate": 1e-9},
        {"kind": "b"},
    ):
        fields.require_allowed(Settings(**values), "setting")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"count": 0}, "count=0 must be at least 1 and at most 20,000"),
        ({"count": 20_001}, "count=20001 must be at least 1 and at most"),
        ({"rate": 0.0}, "rate=0.0 must be greater than 0"),
        ({"rate": math.nan}, "rate=nan must be greater than 0"),
        ({"kind": "c"}, "kind=c must be one of a, b"),
        ({"even": 3}, "even=3 must be even"),
        ({"kind": "c" * 99}, r"kind=c{60}\.\.\. \(99 characters\) must"),
        ({"kind": "a\nb"}, r"kind=a\\nb must"),
    ],
)
def test_what_is_not_is_refused_with_what_would_be_right(values, message):
    with pytest.raises(UserError, match=f"^setting {message}"):
        fields.require_allowed(Settings(**values), "setting")


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (bool, "True", True),
        (bool, "0", False),
        (int, "-12", -12),
        (float, "1e-4", 1e-4),
        (float, ".5", 0.5),
        (str, "Word", "Word"),
    ],
)
def test_texts_are_read_as_the_type_that_is_wanted(kind, text, value):
    found = fields.parse(kind, text)
    assert (type(found), found) == (kind, value)
    assert fields.parse(kind, fields.as_text(value)) == value


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        (bool, "yes", "is not true or false"),
        (int, "1.0", "is not a whole number"),
        (int, "٣", "is not a whole number"),
        (int, "9" * 31, "is not a whole number"),
        (float, "inf", "is not a number"),
        (float, "1e999", "is not a number"),
        (float, "1_0", "is not a number"),
    ],
)
def test_other_texts_are_refused(kind, text, message):
    with pytest.raises(ValueError, match=message):
        fields.parse(kind, text)


def test_the_nearest_name_is_asked_for():
    names = ["routing", "leaky"]
    assert fields.did_you_mean("rooting", names) == " (did you mean routing?)"
    assert fields.did_you_mean("x", names) == ""
