"""The form of checkpoint.json: what it must say, and of which kind.

Its checksum tells that it is what was written, not that a sound program wrote
it.
"""

import math

from input_data.features import LARGEST_SIDE, NUM_IMAGES
from old.fields import MOST_STEPS
from old.text import shortened

_FORM = {
    "sha256": str,
    "step": int,
    "architecture": {
        "model": str,
        "shape": {
            "height": int,
            "width": int,
            "depth": int,
            "num_classes": int,
        },
        "num_targets": int,
        "hparams": {},
    },
    "training": {},
}
# What `training` may lack, or not know; the other settings are of any kind.
_TRAINING = {
    "color": bool,
    "dataset": str,
    "distort": bool,
    "image_size": int,
    "max_steps": int,
    NUM_IMAGES: int,
    "optimizer_state": bool,
    "pad": int,
    "seed": int,
    "validate": bool,
}


def require_form(values):
    """Checks what json gives for a checkpoint's description.

    Raises:
      ValueError: saying which value is missing or wrong.
    """
    _require_kinds(values, _FORM)
    training = values["training"]
    known = {n: training[n] for n in training if training[n] is not None}
    _require_kinds(known, {n: _TRAINING[n] for n in known if n in _TRAINING})
    for name, value in known.items():
        _require(not isinstance(value, dict | list), name, value)
    architecture = values["architecture"]
    shape, targets = architecture["shape"], architecture["num_targets"]
    _require(0 <= values["step"] <= MOST_STEPS, "step", values["step"])
    for name in _FORM["architecture"]["shape"]:
        largest = LARGEST_SIDE if name in ("height", "width") else math.inf
        _require(1 <= shape[name] <= largest, name, shape[name])
    most = min(2, shape["num_classes"])
    _require(1 <= targets <= most, "num_targets", targets)
    names = values.get("class_names")
    _require(
        names is None
        or (
            type(names) is list
            and all(type(name) is str for name in names)
            and len(set(names)) == len(names) == shape["num_classes"]
        ),
        "class_names",
        names,
    )


def _require_kinds(values, form):
    for name, kind in form.items():
        if name not in values:
            raise ValueError(f"{name} is missing")
        value = values[name]
        of_kind = dict if isinstance(kind, dict) else kind
        _require(type(value) is of_kind, name, value)
        if of_kind is dict:
            _require_kinds(value, kind)


def _require(is_so, name, value):
    if not is_so:
        raise ValueError(f"{name} is {shortened(value)}")
