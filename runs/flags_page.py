"""Writes the tables of docs/flags.md.

python -m runs.flags_page
"""

from common.files import write_file
from common.flags import as_text, flag_specs
from config import Config
from models.hparams import BaseHParams
from models.registry import MODELS, model_class
from runs.runner import ROOT
from runs.table import markdown, replace_between

PAGE = ROOT / "docs" / "flags.md"


def updated(text):
    """The text of the page with tables of the current flags."""
    text = replace_between(text, "flags", _table("flag", "--", Config))
    return replace_between(text, "hparams", _hparams_tables())


def _hparams_tables():
    """A table of the shared hyper-parameters and one for each model."""
    parts = ["Every model, unless its own table has another default:"]
    parts.append(_table("name", "", BaseHParams))
    for name in sorted(MODELS):
        hparams_class = model_class(name).HParams
        presets = []
        for preset, values in hparams_class.PRESETS.items():
            text = ", ".join(f"{k}={as_text(v)}" for k, v in values.items())
            presets.append([f"`preset={preset}`", "", f"stands for {text}"])
        shared = flag_specs(BaseHParams).items()
        table = _table("name", "", hparams_class, shared, presets)
        parts += [f"Of `{name}`:", table]
    return "\n\n".join(parts)


def _table(title, prefix, settings_class, shared=(), more_rows=()):
    """A table of the fields of a class that are not among `shared`."""
    rows = []
    for name, specs in sorted(flag_specs(settings_class).items()):
        if (name, specs) not in shared:
            _, default, spec = specs
            flag = f"`{prefix}{name}`"
            rows.append([flag, _default(default, spec), _meaning(spec)])
    return markdown([title, "default", "meaning"], [*rows, *more_rows])


def _default(default, spec):
    if spec.default_text is not None:
        return spec.default_text
    if default in (None, ""):
        return "none"
    if isinstance(default, bool | str):
        return f"`{as_text(default)}`"
    return f"{default:g}" if isinstance(default, float) else str(default)


def _meaning(spec):
    if not spec.choices:
        return spec.help
    return f"{spec.help.rstrip('.')}. One of {', '.join(spec.choices)}."


if __name__ == "__main__":
    write_file(PAGE, updated(PAGE.read_text()))
