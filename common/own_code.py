"""Imports what users name by MODULE:NAME."""

import importlib.util
import os
import sys

from common.errors import UserError


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
