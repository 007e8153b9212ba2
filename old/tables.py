"""Tables in Markdown, and those of the flags and hyper-parameters.

  python -m old.tables

rewrites docs/flags.md from the fields that the flags are made of. A test
asserts that it is up to date.
"""

import pathlib

from old.fields import as_text, meanings

DOCUMENT = pathlib.Path(__file__).parents[1] / "docs" / "flags.md"


def flags_table(settings_class):
    """A table of the flags that are made from a dataclass of fields."""
    rows = [
        (f"`--{name}`", _default(default, meaning), _meaning(meaning))
        for name, (_, default, meaning) in sorted(
            meanings(settings_class).items()
        )
    ]
    return markdown(("flag", "default", "meaning"), rows)


def hparams_tables(models, shared):
    """A table of hyper-parameters for each model, after what all share.

    Args:
      models: dict from name to the class of the model's hyper-parameters.
      shared: the class that they are made from.
    """
    parts = ["Of every model, unless its own table says so:"]
    parts.append(_hparams_table(shared, {}))
    for name, hparams in models.items():
        parts += [f"Of `{name}`:", _hparams_table(hparams, meanings(shared))]
    return "\n\n".join(parts)


def _hparams_table(hparams, others):
    rows = [
        (f"`{name}`", _default(default, meaning), _meaning(meaning))
        for name, (_, default, meaning) in sorted(meanings(hparams).items())
        if name not in others or others[name][1:] != (default, meaning)
    ]
    for name, values in hparams.PRESETS.items():
        listed = ", ".join(f"{k}={as_text(v)}" for k, v in values.items())
        rows.append((f"`preset={name}`", "", f"stands for {listed}"))
    return markdown(("name", "default", "meaning"), rows)


def _meaning(meaning):
    if not meaning.choices:
        return meaning.help
    return f"{meaning.help.rstrip('.')}. One of {', '.join(meaning.choices)}."


def _default(default, meaning):
    if meaning.default_text is not None:
        return meaning.default_text
    if default in (None, ""):
        return "none"
    if isinstance(default, bool | str):
        return f"`{as_text(default)}`"
    return f"{default:g}" if isinstance(default, float) else f"{default}"


def markdown(head, rows):
    """A table: cells are strings, those that a row lacks are empty."""
    lines = [head, ["---"] * len(head)]
    lines += [(*row, *[""] * (len(head) - len(row))) for row in rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def between(text, name, content):
    """A document with other content between the marks of a name.

    Raises:
      ValueError: if there are no such marks.
    """
    begin, end = (f"<!-- {name}: {word} -->" for word in ("begin", "end"))
    before, _, rest = text.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise ValueError(f"there is no {begin} ... {end}")
    return f"{before}{begin}\n\n{content}\n\n{end}{after}"


def rewritten(text):
    """The text of docs/flags.md with the tables as they are now."""
    from models.hparams import BaseHParams
    from models.registry import MODELS, model_class
    from training.config import Config

    models = {name: model_class(name).HParams for name in sorted(MODELS)}
    made = {
        "flags": flags_table(Config),
        "hparams": hparams_tables(models, BaseHParams),
    }
    for name, table in made.items():
        text = between(text, name, table)
    return text


if __name__ == "__main__":
    DOCUMENT.write_text(rewritten(DOCUMENT.read_text()))
