"""Writes the tables of docs/flags.md.

python -m runs.flags_page
"""

from common.files import write_file
from common.flags import flag_specs
from config import Config
from models.hparams import BaseHParams
from models.table import MODELS
from runs.pages import markdown, replace_between
from runs.runner import ROOT

PAGE = ROOT / "docs" / "flags.md"


def updated(text):
    """Returns `text`, the page, with its tables brought up to date."""
    text = replace_between(text, "flags", _table("flag", "--", Config))
    title = "Every model, unless its own table has another default:"
    parts = [title, _table("name", "", BaseHParams)]
    for name in sorted(MODELS):
        hparams_class = MODELS[name].hparams
        shared = flag_specs(BaseHParams).items()
        table = _table("name", "", hparams_class, shared)
        for preset, values in hparams_class.PRESETS.items():
            meaning = ", ".join(f"{k}={v}" for k, v in values.items())
            table += f"\n| `preset={preset}` |  | stands for {meaning} |"
        parts += [f"Of `{name}`:", table]
    return replace_between(text, "hparams", "\n\n".join(parts))


def _table(title, prefix, settings_class, shared=()):
    rows = []
    for name, spec in sorted(flag_specs(settings_class).items()):
        if (name, spec) in shared:
            continue
        meaning, _, special_default = spec.help.partition(" Default: ")
        if spec.choices:
            choices = ", ".join(map(str, spec.choices))
            meaning = f"{meaning.rstrip('.')}. One of {choices}."
        default = special_default.rstrip(".") or _text(spec.default)
        rows.append([f"`{prefix}{name}`", default, meaning])
    return markdown([title, "default", "meaning"], rows)


def _text(default):
    if default in (None, ""):
        return "none"
    if isinstance(default, bool):
        return f"`{default}`".lower()
    return f"`{default}`" if isinstance(default, str) else f"{default:.10g}"


if __name__ == "__main__":
    write_file(PAGE, updated(PAGE.read_text("utf-8")))
