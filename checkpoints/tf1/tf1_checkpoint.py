"""Reading and writing TF1 checkpoints of the reference.

A TF1 checkpoint is named by the prefix of its files, DIR/model.ckpt-1 for
model.ckpt-1.index and model.ckpt-1.data-00000-of-00001 (or one file of that
very name in the older format). It holds the weights under the reference's
names, `global_step` and, unless somebody stripped them, Adam's moments
(`<name>/Adam`, `<name>/Adam_1`) and the powers of its betas.
"""

import contextlib
import glob
import os
import pathlib
import re
import types

import keras
import numpy as np
import tensorflow as tf

from checkpoints.folder import path_of
from checkpoints.tf1.mismatch import describe_mismatch
from input_data.formats.files import require_regular
from models.optimizer import ADAM_BETAS
from models.tf1_variables import tf1_name
from old.durable import (
    refuse_existing,
    remove_leftovers,
    user_errors,
    whole,
)
from old.errors import UserError

STEP = "global_step"
# beta ** (step + 1) after `step` updates.
POWERS = ("beta1_power", "beta2_power")
# TF1's names of Adam's slots, and Keras'.
SLOTS = {"/Adam": "_momentum", "/Adam_1": "_velocity"}
# What TensorFlow's reader raises for files that are damaged or none of its.
_READ_ERRORS = (
    tf.errors.OpError,
    LookupError,
    OSError,
    RuntimeError,
    ValueError,
)
_INDEX = ".index"
_DATA = ".data-00000-of-00001"
_SUFFIX = r"\.(?:index|meta|data-\d{5}-of-\d{5})"
_ONE_FILE = re.compile(f"(.+){_SUFFIX}", re.DOTALL)
# More than the rounding of the product of many float32 betas.
_POWER_TOLERANCE = 1e-4


def is_tf1(path):
    """Whether a TF1 checkpoint, not one of ours, is named by `path`."""
    # Not pathlib's, which raise errors for names that are too long.
    return not os.path.isdir(path) and (
        os.path.isfile(path) or os.path.isfile(f"{path}.index")
    )


class Tf1Checkpoint:
    """A TF1 checkpoint that was opened; it tells little of itself.

    Attributes:
      path: `pathlib.Path`, the prefix of its files.
      step: int, the training steps taken: `global_step`.
      has_slots: bool, whether Adam's moments are in it.
      architecture, training, class_names: None, {} and None.

    Args:
      path: path, the prefix of its files.

    Raises:
      UserError: if it is not a TF1 checkpoint, or has no `global_step`.
    """

    architecture = None
    training = types.MappingProxyType({})
    class_names = None

    def __init__(self, path):
        self.path = pathlib.Path(path)
        one_file = _ONE_FILE.fullmatch(str(path))
        if one_file:
            raise UserError(
                f"{path} is one file of a TF1 checkpoint, which is named by "
                f"{one_file.group(1)}"
            )
        with self._errors():
            self._require_files()
            self._reader = tf.train.load_checkpoint(str(path))
            shapes = self._reader.get_variable_to_shape_map()
        self._shapes = {name: tuple(shape) for name, shape in shapes.items()}
        self.has_slots = any(
            name.endswith(tuple(SLOTS)) for name in self._shapes
        )
        self.step = self._read_step()

    def _require_files(self):
        """Refuses pipes and devices, which might never end."""
        folder = self.path.parent
        for path in folder.glob(f"{glob.escape(self.path.name)}*"):
            name = path.name.removeprefix(self.path.name)
            if re.fullmatch(_SUFFIX, name):
                require_regular(path)

    def require_usable(self, config, pipeline):
        """Refuses nothing: what it was trained on nobody knows."""

    def load(self, model, architecture):
        """Gives a model the checkpoint's weights.

        A compiled model whose optimiser is Adam gets the optimiser's state
        and step too if `has_slots`; else its optimiser is left as it is.

        Args:
          model: `keras.Model` of the architecture.
          architecture: `Architecture`.

        Raises:
          UserError: for variables that are missing, unexpected or of a wrong
            shape or type, all listed, and for a damaged file. The model is
            then as it was.
        """
        self.require_same_network(architecture)
        layouts = architecture.tf1_variables()
        optimizer = getattr(model, "optimizer", None)
        targets = _weights(model)
        layout_of = dict(layouts)
        if optimizer is not None and self.has_slots:
            for name, slot in _slots(model).items():
                targets[name] = slot
                layout_of[name] = layouts[name.rpartition("/")[0]]
        with self._errors():
            values = {
                name: self._reader.get_tensor(name)
                for name in (*targets, *(POWERS if self.has_slots else ()))
            }
        for name, target in targets.items():
            target.assign(
                layout_of[name].from_tf1(values[name], tuple(target.shape))
            )
        if optimizer is not None and self.has_slots:
            optimizer.iterations.assign(self.step)
            self._note_other_powers(values)

    def require_same_network(self, architecture):
        """Raises UserError for an `Architecture` of other variables."""
        layouts = architecture.tf1_variables()
        expected = {name: layout.shape for name, layout in layouts.items()}
        if self.has_slots:
            expected |= {
                name + slot: layout.shape
                for name, layout in layouts.items()
                for slot in SLOTS
            }
            expected |= dict.fromkeys(POWERS, ())
        expected[STEP] = ()
        # Without moments the powers of the betas mean nothing.
        shapes = {
            name: shape
            for name, shape in self._shapes.items()
            if name in expected or name not in POWERS
        }
        lines = describe_mismatch(shapes, expected, architecture)
        types = self._reader.get_variable_to_dtype_map()
        lines += [
            f"wrong type: {name} is {types[name].name}, should be float32"
            for name in sorted(shapes.keys() & expected.keys() - {STEP})
            if types[name] != tf.float32
        ]
        if lines:
            raise UserError(
                f"{self.path} is not a checkpoint of the network that was "
                "asked for:",
                *(f"  {line}" for line in lines),
            )

    def _read_step(self):
        if self._shapes.get(STEP) != ():
            names = ", ".join(sorted(self._shapes)) or "none"
            raise UserError(
                f"{self.path} is not a TF1 checkpoint of the reference: it "
                f"has no single number {STEP}. Its variables: {names}"
            )
        with self._errors():
            value = self._reader.get_tensor(STEP)
        # The reference's is float32.
        is_number = value.dtype.kind in "fiu" and np.isfinite(value)
        if not is_number or value < 0 or value != int(value):
            raise UserError(
                f"{self.path}: {STEP} is {value}, which is not a number of "
                "steps"
            )
        return int(value)

    def _note_other_powers(self, values):
        """Says where our optimiser, which has one count, cannot follow."""
        for name, beta in zip(POWERS, ADAM_BETAS, strict=True):
            power = beta ** (self.step + 1)
            if not abs(values[name] - power) <= _POWER_TOLERANCE:
                print(
                    f"Note: {self.path}: {name} is {values[name]:.6g}, but "
                    f"after {STEP}={self.step} it would be {power:.6g}. "
                    "Adam's bias correction goes on from the step."
                )

    @contextlib.contextmanager
    def _errors(self):
        try:
            yield
        except _READ_ERRORS as error:
            raise UserError(
                f"{self.path} cannot be read as a TF1 checkpoint: {error}"
            ) from error


def save(directory, model, architecture, step, with_slots=True):
    """Writes a checkpoint that the reference's Saver restores.

    Args:
      directory: path, made if it is not there.
      model: compiled `keras.Model` of the architecture with a built Adam.
      architecture: `Architecture`.
      step: int, for `global_step` and the name.
      with_slots: bool, whether to write Adam's state too.

    Returns:
      The path that names it, `<directory>/model.ckpt-<step>`.

    Raises:
      UserError: if one of that name exists, or it cannot be written.
    """
    final = free_path(directory, step)
    with user_errors(final):
        final.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(final.parent)
        # The index, by which readers find a checkpoint, comes last by name.
        with whole(final) as partial:
            _write(partial, _tf1_values(model, architecture, step, with_slots))
    return final


def _tf1_values(model, architecture, step, with_slots):
    """Dict from the reference's name to array, everything its Saver wants."""
    layouts = architecture.tf1_variables()
    values = {
        name: layouts[name].to_tf1(keras.ops.convert_to_numpy(variable))
        for name, variable in _weights(model).items()
    }
    values[STEP] = np.float32(step)
    if with_slots:
        for name, slot in _slots(model).items():
            layout = layouts[name.rpartition("/")[0]]
            values[name] = layout.to_tf1(keras.ops.convert_to_numpy(slot))
        for name, beta in zip(POWERS, ADAM_BETAS, strict=True):
            values[name] = np.float32(beta ** (step + 1))
    return values


def _write(prefix, values):
    with tf.device("CPU:0"):
        tf.raw_ops.SaveV2(
            prefix=str(prefix),
            tensor_names=list(values),
            shape_and_slices=[""] * len(values),
            tensors=[tf.constant(value) for value in values.values()],
        )


def _weights(model):
    """Dict from the reference's name to trainable `keras.Variable`."""
    return {tf1_name(v): v for v in model.trainable_variables}


def _slots(model):
    """Adam's moments: dict from the reference's name to `keras.Variable`."""
    optimizer = model.optimizer
    optimizer.build(model.trainable_variables)
    by_path = {v.path.partition("/")[2]: v for v in optimizer.variables}
    return {
        name + tf1_slot: by_path[variable.path.replace("/", "_") + keras_slot]
        for name, variable in _weights(model).items()
        for tf1_slot, keras_slot in SLOTS.items()
    }


def free_path(directory, step):
    """The path for a new checkpoint of a step, of whichever form.

    Raises:
      UserError: if there is something of that name.
    """
    path = path_of(directory, step)
    for suffix in ("", _INDEX, _DATA):
        refuse_existing(path.with_name(path.name + suffix))
    return path
