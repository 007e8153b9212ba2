"""Predicts the classes of image files by a trained network, or exports it.

  python predict.py --checkpoint=/tmp/mnist/train/model.ckpt-1000 seven.png
  python predict.py --checkpoint=... --format=json folder > lengths.jsonl
  python predict.py --checkpoint=... --invert - < scan.jpg
  python predict.py --checkpoint=... --export=/tmp/mnist.keras

--help lists the flags.
"""

from common import startup  # noqa: F401 - must be the first

# isort: split
import os
import signal
import sys

from absl import app, flags, logging

from common.errors import UserError
from devices.choice import computing_on
from evaluation.export import export
from evaluation.prediction import (
    JsonLines,
    Table,
    class_names_of,
    list_files,
    load_network,
    predict_files,
    trained_on,
)
from input_data import features as keys
from input_data import registry
from input_data.formats.image_file import decode
from input_data.transforms.fitting import fit


def define_flags():
    """Defines the flags of the command."""
    flags.DEFINE_string(
        "checkpoint",
        None,
        "The checkpoint of the network, such as DIR/train/model.ckpt-1000.",
    )
    flags.DEFINE_list(
        "class_names",
        None,
        "Names of the classes, separated by commas, in the order of their "
        "numbers. Default: those of the data set that the checkpoint was "
        "trained on; the numbers, from 0, if it has none.",
    )
    flags.DEFINE_string(
        "dataset",
        None,
        "The data set that the network was trained on, where the checkpoint "
        "does not tell: one that was converted from TF1.",
    )
    flags.register_validator(
        "dataset",
        lambda name: name is None or registry.is_valid_name(name),
        f"should be one of {registry.valid_names()}",
    )
    flags.DEFINE_string(
        "export",
        None,
        "Where to write the network: a file for Keras if the name ends in "
        ".keras, else the folder of a SavedModel for serving. Nothing is "
        "overwritten.",
    )
    flags.DEFINE_enum(
        "format",
        "table",
        ["table", "json"],
        "What to print: a table, or one JSON document to a line.",
    )
    flags.DEFINE_bool(
        "invert",
        False,
        "Whether to turn dark to bright: for dark digits on bright paper.",
    )
    flags.DEFINE_integer(
        "num_targets",
        None,
        "Objects in each image, 1 or 2. Default: the checkpoint's.",
        lower_bound=1,
        upper_bound=2,
    )


class _Complaints:
    """Prints errors that do not stop the work, and counts them."""

    def __init__(self):
        self.number = 0

    def __call__(self, error):
        self.number += 1
        sys.stdout.flush()
        print(f"predict.py: {error}", file=sys.stderr, flush=True)


def run(settings, arguments):
    """Exports and predicts, as asked for.

    Args:
      settings: the values of the flags, as attributes.
      arguments: list of files and folders, may be empty when exporting.

    Returns:
      Exit code: 1 if a file or folder could not be used, else 0.

    Raises:
      UserError: for a checkpoint or flags that do not work.
    """
    if settings.checkpoint is None:
        raise UserError(
            "--checkpoint is required: the network, for instance "
            "--checkpoint=/tmp/capsules/train/model.ckpt-1000"
        )
    if not arguments and settings.export is None:
        raise UserError(
            "nothing to do: name images, folders of images, or - for standard "
            "input; or --export"
        )
    with computing_on():
        network, metadata = load_network(settings.checkpoint)
        if settings.export is not None:
            export(settings.export, network)
            print(f"Exported to {settings.export}", file=sys.stderr)
        if not arguments:
            return 0
        return _predict(settings, arguments, network, metadata)


def _predict(settings, arguments, network, metadata):
    """Predicts files; returns the exit code."""
    shape = metadata.architecture.shape
    names = class_names_of(metadata, settings.class_names)
    data_set = registry.find(trained_on(metadata, settings.dataset))
    num_targets = settings.num_targets or metadata.architecture.num_targets
    if shape.depth not in (1, 3):
        print(
            f"Note: the network takes {shape.depth} views of an object; each "
            "image serves as all of them",
            file=sys.stderr,
        )
    stretched = metadata.training.get("image_size") is not None
    complain = _Complaints()
    files = list_files(arguments, complain)

    def prepare(content, name):
        image = decode(content, name, shape.depth == 3, settings.invert)
        return fit(image, shape, data_set, stretched)

    has_capsules = keys.CAPSULES in network.output
    if settings.format == "json":
        printer = JsonLines(names, has_capsules)
    else:
        printer = Table(files, names, num_targets, has_capsules)
    for prediction in predict_files(
        files, network, prepare, num_targets, complain
    ):
        printer.print(prediction)
    sys.stdout.flush()
    return 1 if complain.number else 0


def main(argv):
    """Does what the flags ask for; a user's error is one line and exit 1."""
    # TensorFlow tells every step of an export.
    logging.set_verbosity(logging.WARNING)
    # File names of any bytes are printed as they are.
    sys.stdout.reconfigure(errors="surrogateescape")
    sys.stderr.reconfigure(errors="surrogateescape")
    try:
        return run(flags.FLAGS, argv[1:])
    except UserError as error:
        sys.exit(f"predict.py: {error}")
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    except BrokenPipeError:
        # The reader, such as head, has what it wants. Python would write the
        # rest on its way out.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + signal.SIGPIPE)


if __name__ == "__main__":
    define_flags()
    # Flags may stand after the files, too.
    flags.FLAGS.set_gnu_getopt(True)
    app.run(main)
