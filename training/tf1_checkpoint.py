"""Converts TF1 checkpoints of the reference into ours, and ours into TF1's.

  python -m training.tf1_checkpoint DIR/model.ckpt-600000 OUT \
    --hparams_override=num_prime_capsules=64,padding=SAME,remake=false \
    --height=24 --width=24 --depth=3
  python -m training.tf1_checkpoint OUT/model.ckpt-600000 BACK

The arguments are the checkpoint to convert and the folder to make
model.ckpt-STEP in. The flags describe the network of a TF1 checkpoint, which
does not describe itself.
"""

import dataclasses

from absl import app, flags

import devices
import old.flags
from input_data.features import ImageShape
from models.registry import MODELS
from old.ending import told
from old.errors import UserError
from old.fields import field, meanings
from old.startup import load_backend

_LARGEST = 10**5


def _size(default, help_text):
    return field(default, help_text, at_least=1, at_most=_LARGEST)


@dataclasses.dataclass(frozen=True)
class Network:
    """What a TF1 checkpoint does not tell, with MNIST's as defaults."""

    model: str = field("capsule", "The network.", choices=sorted(MODELS))
    hparams_override: str = field("", "Its hyper-parameters: name=value,...")
    height: int = _size(28, "Pixels of an image.")
    width: int = _size(28, "Pixels of an image.")
    depth: int = _size(1, "Channels of an image.")
    num_classes: int = _size(10, "Classes.")
    num_targets: int = field(1, "Objects in each image.", at_least=1, at_most=2)


def convert(source, directory, network, given):
    """Converts one way or the other.

    Args:
      source: path of a checkpoint of ours, or the prefix of TF1's files.
      directory: path of the folder for the new one.
      network: `Network`.
      given: names of its fields that the user gave.

    Returns:
      The path of the new checkpoint.

    Raises:
      UserError: as `import_tf1` and `export_tf1`, and if a checkpoint that
        describes itself is described.
    """
    import checkpoints
    from checkpoints.architecture import Architecture
    from checkpoints.tf1.convert import export_tf1, import_tf1
    from checkpoints.tf1.tf1_checkpoint import is_tf1

    if is_tf1(source):
        architecture = Architecture.from_strings(
            network.model,
            ImageShape(
                *(network.height, network.width, network.depth),
                network.num_classes,
            ),
            network.num_targets,
            network.hparams_override,
        )
        return import_tf1(source, directory, architecture)
    if given and checkpoints.exists(source):
        names = ", ".join(f"--{name}" for name in given)
        raise UserError(f"{source} describes itself: leave out {names}")
    return export_tf1(source, directory)


def main(argv):
    """Does what the flags ask for; a user's error is one line and exit 1."""
    if len(argv) != 3:
        raise app.UsageError("name a checkpoint and a folder")
    with told("tf1_checkpoint"):
        given = [n for n in meanings(Network) if flags.FLAGS[n].present]
        network = old.flags.settings_of(Network)
        load_backend()
        with devices.use(devices.Settings(num_processes=1), "tf1_checkpoint"):
            print(convert(*argv[1:], network, given))


if __name__ == "__main__":
    old.flags.define(Network)
    app.run(main, flags_parser=old.flags.parse_or_explain)
