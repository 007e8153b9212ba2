"""Reads TF1 checkpoints of the reference; converts them for this project.

  python -m training.tf1_checkpoint DIR/model.ckpt-600000 OUT \
    --hparams_override=num_prime_capsules=64,padding=SAME,remake=false \
    --height=24 --width=24 --depth=3

This command writes OUT/model.ckpt-600000. The flags describe the network. A TF1
checkpoint is named by the prefix of its files, DIR/model.ckpt-1 for
model.ckpt-1.index and model.ckpt-1.data-00000-of-00001. It holds `global_step`,
weights under the reference's names, and usually Adam's moments.
"""

import dataclasses
import pathlib
import types

from common import flags, load_backend
from common.errors import UserError, user_errors
from common.files import make_folder
from common.flags import field
from config import MODEL_NAMES
from input_data.keys import ImageShape

# TensorFlow is imported in functions, so that --help is answered at once.

STEP = "global_step"
# Suffixes of the names of Adam's moments.
_SLOTS = ("/Adam", "/Adam_1")
# Names of the weights of Keras' layers, and the reference's.
_LEAVES = {"kernel": "weights", "bias": "biases"}


class Tf1Checkpoint:
    """A TF1 checkpoint, with the attributes and methods of `Checkpoint`.

    Raises UserError if the file is unreadable or not a TF1 checkpoint.
    """

    # They are not stored.
    architecture = None
    run_settings = types.MappingProxyType({})
    class_names = None

    def __init__(self, path):
        import tensorflow as tf

        self.path = pathlib.Path(path)
        with user_errors(path):
            self._reader = tf.train.load_checkpoint(str(path))
            self._shapes = self._reader.get_variable_to_shape_map()
            self.step = int(self._reader.get_tensor(STEP))
        self.has_optimizer_state = any(n.endswith(_SLOTS) for n in self._shapes)

    def check_same_data(self, config, spec):
        """Does nothing: TF1 checkpoints do not store the data set."""

    def can_continue(self, model):
        """Whether it has the state of the network's optimizer."""
        return self.has_optimizer_state and not model.hparams.ema

    def load(self, model, architecture):
        """Loads weights and, into a compiled model, any saved moments of Adam.

        Raises UserError if the checkpoint's weights have other names or shapes
        than the model's; the model is then unchanged.
        """
        variables = model.trainable_variables
        names = [tf1_name(variable) for variable in variables]
        self._require_shapes(dict(zip(names, variables, strict=True)))
        layouts = _layouts(model, architecture)
        parts = {"": variables}
        optimizer = getattr(model, "optimizer", None)
        if optimizer is not None and self.has_optimizer_state:
            optimizer.iterations.assign(self.step)
            from layers.backends import adam_moments

            moments = [adam_moments(optimizer, v) for v in variables]
            parts |= dict(zip(_SLOTS, zip(*moments, strict=True), strict=True))
        with user_errors(self.path):
            for suffix, part in parts.items():
                for name, variable in zip(names, part, strict=True):
                    value = self._reader.get_tensor(name + suffix)
                    if name in layouts:
                        sizes, order = layouts[name]
                        value = value.reshape(sizes).transpose(order)
                    variable.assign(value.reshape(variable.shape))

    def _require_shapes(self, weights):
        def sizes(shape):
            return [size for size in shape if size != 1]

        saved = {
            name: sizes(shape)
            for name, shape in self._shapes.items()
            if not name.endswith((STEP, "_power", *_SLOTS))
        }
        expected = {name: sizes(v.shape) for name, v in weights.items()}
        problems = [
            f"{name} has shape {saved.get(name)}, not {expected.get(name)}"
            for name in sorted(saved.keys() | expected.keys())
            if saved.get(name) != expected.get(name)
        ]
        if problems:
            raise UserError(
                f"{self.path} does not fit this network: "
                f"{'; '.join(problems[:5])}. Describe the network by --model, "
                "--hparams_override and the data flags"
            )


def tf1_name(variable):
    """The reference's name of a trainable `keras.Variable` of a model."""
    _, *scopes, leaf = variable.path.split("/")
    return "/".join([*scopes, _LEAVES.get(leaf, leaf)])


def _layouts(model, architecture):
    """Dict from the reference's name to the sizes and order of flattened axes.

    The reference orders channels (or capsule types) before rows and columns;
    here they come last.
    """
    if architecture.model == "baseline":
        pool = model.network.get_layer("pool2")
        _, height, width, channels = pool.output.shape
        return {"fc1/weights": ((channels, height, width, -1), (1, 2, 0, 3))}
    shape, primary = architecture.shape, model.network.output["conv_capsule1"]
    _, height, width, num_types, atoms = primary.shape
    capsules = (num_types, height, width, atoms, -1)
    pixels = (shape.depth, shape.height, shape.width)
    return {
        "capsule2/weights": (capsules, (1, 2, 0, 3, 4)),
        "recons/recons_3/weights": ((-1, *pixels), (0, 2, 3, 1)),
        "recons/recons_3/biases": (pixels, (1, 2, 0)),
    }


@dataclasses.dataclass(frozen=True)
class NetworkFlags:
    """Settings that a TF1 checkpoint lacks; the defaults are for MNIST."""

    model: str = field("capsule", "The model.", choices=tuple(MODEL_NAMES))
    hparams_override: str = field("", "Hyper-parameters: name=value,...")
    height: int = field(28, "Height of an image in pixels.", at_least=1)
    width: int = field(28, "Width of an image in pixels.", at_least=1)
    depth: int = field(1, "Channels of an image.", at_least=1)
    num_classes: int = field(10, "Classes.", at_least=1)
    num_targets: int = field(1, "Objects in an image.", at_least=1, at_most=2)


def convert(source, directory, network):
    """Converts a TF1 checkpoint; returns the path of the new checkpoint.

    The new checkpoint has no data set or training settings. It can initialize a
    training. With Adam's moments it can resume one, too.
    """
    from models.architecture import Architecture
    from models.optimizer import compile_model
    from training.checkpoint import Checkpoint, save

    sizes = network.height, network.width, network.depth
    shape = ImageShape(*sizes, network.num_classes)
    architecture = Architecture.from_config(network, shape, network.num_targets)
    if architecture.hparams.ema:
        raise UserError("ema: a TF1 checkpoint has no average of the weights")
    tf1 = Tf1Checkpoint(source)
    model = architecture.build()
    compile_model(model, max_steps=1)
    tf1.load(model, architecture)
    model.optimizer.iterations.assign(tf1.step)
    settings = {"converted_from": str(source)}
    settings["optimizer_state"] = tf1.has_optimizer_state
    converted = Checkpoint(tf1.step, architecture, settings)
    return save(make_folder(directory), model, converted)


def main(arguments):
    """Converts the checkpoint that the arguments name."""
    if len(arguments) != 2:
        raise UserError("give a TF1 checkpoint and an output folder")
    load_backend()
    print(convert(*arguments, flags.settings_of(NetworkFlags)))


if __name__ == "__main__":
    flags.define(NetworkFlags)
    flags.run(main, takes_arguments=True)
