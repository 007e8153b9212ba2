"""Weights that other projects saved as HDF5 files by Keras 2.

  Efficient-CapsNet   the authors' networks for MNIST, MultiMNIST and smallNORB,
                      https://github.com/EscVM/Efficient-CapsNet
  CapsNet-Keras       https://github.com/XifengGuo/CapsNet-Keras, and networks
                      of its layers, https://github.com/MiguelCosta94/Q7-CapsNets

The names and shapes of the weights determine the network.
"""

import dataclasses
import math
import re

import h5py

from common.errors import UserError, user_errors
from input_data.keys import ImageShape
from models.architecture import Architecture
from models.table import find_model
from training.checkpoint import Checkpoint

# Image size and objects in an image of Efficient-CapsNet, by the height of the
# primary capsules' kernel: MNIST, MultiMNIST and smallNORB.
_EFFICIENT_SIZES = {9: (28, 1), 5: (36, 2), 8: (48, 1)}


@dataclasses.dataclass(frozen=True)
class H5Weights(Checkpoint):
    """A checkpoint with the weights `arrays`, ordered as `model.weights`."""

    arrays: list = ()

    def _load_weights(self, model):
        for variable, array in zip(model.weights, self.arrays, strict=True):
            variable.assign(array)


def open_weights(path):
    """Opens Efficient-CapsNet or CapsNet-Keras weights as `H5Weights`, step 0.

    Raises UserError if the file cannot be read or has an unknown network.
    """
    with user_errors(path):
        layers = _read(path)
        names = {name for _, name in layers}
        if "digit_caps" in names:
            describe = _efficient_capsule
        elif "primarycap_conv2d" in names:
            describe = _capsule
        else:
            raise UserError(
                f"{path} is neither of Efficient-CapsNet nor of CapsNet-Keras"
            )
        name, shape, num_targets, hparams, arrays = describe(layers)
    hparams = find_model(name).hparams(**hparams)
    architecture = Architecture(name, shape, num_targets, hparams)
    settings = {"optimizer_state": False}
    return H5Weights(0, architecture, settings, path=path, arrays=arrays)


def _read(path):
    """Dict from (group, layer) to arrays by name, ordered by layer numbers."""
    layers = {}

    def add(path, item):
        if isinstance(item, h5py.Dataset):
            group, *_, layer, name = path.split("/")
            arrays = layers.setdefault((group, layer), {})
            arrays[name.removesuffix(":0")] = item[()]

    def number(item):
        return int((re.findall(r"_(\d+)$", item[0][1]) or [0])[0])

    with h5py.File(path) as file:
        file.get("model_weights", file).visititems(add)
    return dict(sorted(layers.items(), key=number))


def _efficient_capsule(layers):
    (votes,) = (a for (_, name), a in layers.items() if name == "digit_caps")
    network = [a for (group, _), a in layers.items() if group == "CapsNet"]
    *convolutions, primary = (a for a in network if "kernel" in a)
    norms = [a for a in network if "gamma" in a]
    is_batch = "moving_mean" in norms[0]
    statistics = ("moving_mean", "moving_variance") if is_batch else ()
    decoder = _decoder(layers, "Generator")
    num_classes, capsules, primary_atoms, class_atoms = votes["W"].shape
    size, num_targets = _EFFICIENT_SIZES[len(primary["kernel"])]
    *_, depth, first_channels = convolutions[0]["kernel"].shape
    hparams = {
        "class_atoms": class_atoms,
        "first_channels": first_channels,
        "middle_channels": convolutions[1]["kernel"].shape[-1],
        "normalization": "batch" if is_batch else "instance",
        "num_prime_capsules": capsules,
        "primary_atoms": primary_atoms,
        "remake": bool(decoder),
    }
    blocks = [a | b for a, b in zip(convolutions, norms, strict=True)]
    arrays = [
        *_in_order(blocks, "kernel", "bias", "gamma", "beta", *statistics),
        *(primary["kernel"][:, :, 0], primary["bias"]),
        *(votes["W"], votes["b"][..., 0]),
        *_in_order(decoder, "kernel", "bias"),
    ]
    shape = ImageShape(size, size, depth, num_classes)
    return "efficient_capsule", shape, num_targets, hparams, arrays


def _capsule(layers):
    by_name = {name: arrays for (_, name), arrays in layers.items()}
    first = by_name.get("conv1") or by_name["conv2d"]
    primary = by_name["primarycap_conv2d"]
    (votes,) = (by_name.get("digitcaps") or by_name["capsule"]).values()
    decoder = _decoder(layers, "decoder")
    kernel_size, _, depth, conv_channels = first["kernel"].shape
    num_classes, capsules, class_atoms, primary_atoms = votes.shape
    num_types = primary["bias"].size // primary_atoms
    # Two heights have as many positions of primary capsules: the even one.
    positions = math.isqrt(capsules // num_types)
    size = 2 * (positions - 1 + kernel_size)
    shape = ImageShape(size, size, depth, num_classes)
    hparams = {
        "class_atoms": class_atoms,
        "class_bias": False,
        "conv_channels": conv_channels,
        "kernel_size": kernel_size,
        "num_prime_capsules": num_types,
        "primary_atoms": primary_atoms,
        "remake": bool(decoder),
    }
    arrays = [
        *(first["kernel"], first["bias"]),
        # Our coupling of a primary capsule is 1 / num_types, not 1.
        primary["kernel"] * num_types,
        primary["bias"].reshape(num_types, primary_atoms),
        # [O, I, A, a] -> [I, a, O * A]
        votes.transpose(1, 3, 0, 2).reshape(capsules, primary_atoms, -1),
        *_in_order(decoder, "kernel", "bias"),
    ]
    return "capsule", shape, 1, hparams, arrays


def _decoder(layers, group):
    """The three dense layers, or [] for another or no decoder."""
    decoder = [arrays for (name, _), arrays in layers.items() if name == group]
    is_dense = all(arrays["kernel"].ndim == 2 for arrays in decoder)
    return decoder if is_dense else []


def _in_order(layers, *names):
    return [layer[name] for layer in layers for name in names]
