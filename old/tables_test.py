import dataclasses

import pytest

from old import tables
from old.fields import field


@dataclasses.dataclass(frozen=True)
class Shared:
    PRESETS = {}  # noqa: RUF012
    rate: float = field(0.001, "how fast")


@dataclasses.dataclass(frozen=True)
class Own(Shared):
    PRESETS = {"tiny": {"size": 1, "open": True}}  # noqa: RUF012
    size: int = field(20_000, "how large")
    name: str | None = field(None, "its name", default_text="the usual")
    open: bool = field(False, "whether it is open")
    text: str = field("", "what it says")


def test_a_table_has_a_line_for_each_flag():
    assert (
        tables.flags_table(Own)
        == """\
| flag | default | meaning |
| --- | --- | --- |
| `--name` | the usual | its name |
| `--open` | `false` | whether it is open |
| `--rate` | 0.001 | how fast |
| `--size` | 20000 | how large |
| `--text` | none | what it says |"""
    )


def test_hyper_parameters_that_models_share_stand_once():
    text = tables.hparams_tables({"own": Own}, Shared)
    shared, own = text.split("Of `own`:")
    assert "| `rate` | 0.001 | how fast |" in shared
    assert "`rate`" not in own
    assert "| `size` | 20000 | how large |" in own
    assert "| `preset=tiny` |  | stands for size=1, open=true |" in own


def test_the_document_is_up_to_date():
    text = tables.DOCUMENT.read_text()
    assert tables.rewritten(text) == text, "python -m old.tables"
    with pytest.raises(ValueError, match="there is no <!-- flags: begin -->"):
        tables.rewritten("")
