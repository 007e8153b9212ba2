"""Loads trained networks for predict.py and demo.py without a data set."""

import pathlib
import sys

import numpy as np

import layers
from common.errors import UserError, user_errors
from input_data import preparation as preparing
from input_data.files import decode_image
from input_data.keys import ImageShape
from input_data.registry import find_data_set
from models.architecture import Architecture
from models.table import find_model
from training.checkpoint import Checkpoint
from training.formats import open_checkpoint


class Pretrained(Checkpoint):
    """A `Checkpoint` with the weights of `layers.pretrained("mnist")`."""

    def _load_weights(self, model):
        weights = layers.pretrained("mnist").get_weights()
        model.functional().set_weights(weights)


def open_or_pretrained(flags):
    """Opens `flags.checkpoint`; returns a `Pretrained` without this flag."""
    if flags.checkpoint:
        return open_checkpoint(flags.checkpoint, flags.model)
    print("No --checkpoint: the pretrained MNIST network", file=sys.stderr)
    name, shape = "efficient_capsule", ImageShape(28, 28, 1, 10)
    architecture = Architecture(name, shape, 1, find_model(name).hparams())
    path = pathlib.Path("pretrained network")
    return Pretrained(0, architecture, {"dataset": "mnist"}, path=path)


def load_network(checkpoint, config=None):
    """The model of a checkpoint, without a data set.

    A resolved `config` may change hyper-parameters. Raises UserError for a TF1
    checkpoint or a `config` of another network.
    """
    architecture = saved = checkpoint.architecture
    if saved is None:
        raise UserError(
            f"convert {checkpoint.path} by python -m training.tf1_checkpoint"
        )
    if config is not None:
        architecture = Architecture.from_config(
            config, saved.shape, config.num_targets, saved
        )
    model = architecture.build()
    checkpoint.load(model, architecture)
    return model


def class_names(checkpoint, names=None):
    """List of class names: `names`, else the checkpoint's, else numbers."""
    count = checkpoint.architecture.shape.num_classes
    if names and not len(names) == len(set(names)) == count:
        raise UserError(f"--class_names needs {count} different names")
    return list(names or checkpoint.class_names or map(str, range(count)))


def preparation(config, shape, centered=False, bright_edged=None):
    """A function that turns image files into inputs of a network.

    The function takes a file's content (bytes), its name, and whether to invert
    the image. It returns float32 [height, width, depth] of `shape`. If
    `centered`, `preparing.center` centers digits. The list `bright_edged` gets
    the names of digits with a bright edge (MNIST's is dark).
    """
    digit_size = None
    if shape.depth == 1:
        digit_size = find_data_set(config.dataset).digit_size
    if centered and (digit_size is None or config.num_targets == 2):
        raise UserError("--center needs a network for single digits")
    if shape.depth > 3:
        raise UserError(
            f"image files cannot give the network's {shape.depth} channels"
        )

    def prepare(content, name, invert):
        image = decode_image(content, name, shape.depth == 3, invert)
        edge = preparing.edge(image)
        brightest = np.median(edge) if centered else edge.max()
        if digit_size and brightest > 127 and bright_edged is not None:
            bright_edged.append(name)
        if centered:
            ink = preparing.remove_background(image[..., 0])
            size = shape.height, shape.width
            digit = preparing.center(ink, size, digit_size=digit_size)
            return digit / np.float32(255)
        with user_errors(name):  # it may be too thin to resize
            return preparing.prepare_image(image, shape, config)

    return prepare
