"""Finds models by the names that `--model` takes.

This file imports no model, so that flags are parsed without TensorFlow.
"""

import pathlib

from common.errors import UserError
from common.flags import import_named, require_known

_NETWORKS = pathlib.Path(__file__).parents[1] / "layers" / "networks"
# The files of networks have the names of the rows of `table.MODELS`.
MODEL_NAMES = sorted(
    path.stem
    for path in _NETWORKS.glob("[a-z]*.py")
    if path.stem != "base" and not path.stem.endswith("_test")
)
PHOTO_MODEL = "photo_capsule"


def find_model(name):
    """The `table.Model` that a name stands for.

    A name is a key of `table.MODELS` or MODULE:NAME. MODULE is outside this
    project, in the working directory or on PYTHONPATH. Raises UserError for
    other names.
    """
    from models.table import MODELS, Model

    if not is_external(name):
        require_known("model", name, MODEL_NAMES)
        return MODELS[name]
    found = import_named("--model", name)
    if not isinstance(found, Model):
        raise UserError(f"--model={name} is no models.table.Model")
    return found


def is_external(name):
    """Whether a name has the form MODULE:NAME."""
    return ":" in (name or "")
