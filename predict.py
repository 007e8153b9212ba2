"""Predicts the classes of image files by a trained network, or exports it.

  python predict.py --checkpoint=/tmp/mnist/train/model.ckpt-1000 seven.png
  python predict.py --checkpoint=... --format=json folder > lengths.jsonl
  python predict.py --checkpoint=... --invert - < scan.jpg
  python predict.py --checkpoint=... --export=/tmp/mnist.keras

--help lists the flags.
"""

import functools
import sys

from absl import app, flags, logging

import devices
from input_data.options import Options
from old.ending import told
from old.errors import UserError
from old.fields import meanings
from old.flags import parse_or_explain, validator
from old.startup import load_backend

# What takes long to import is imported in functions, so that --help and a
# wrong flag are answered at once.


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
        validator(meanings(Options)["dataset"][2]),
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
    load_backend()
    from evaluation import export, prediction
    from input_data import features as keys

    with devices.use(devices.Settings(num_processes=1), "predict.py"):
        network, checkpoint = prediction.load_network(settings.checkpoint)
        if arguments:  # first, lest a wrong flag ends it after the export
            names = prediction.class_names_of(checkpoint, settings.class_names)
            prepare = _preparation(settings, checkpoint)
        if settings.export is not None:
            export.export(settings.export, network)
            print(f"Exported to {settings.export}", file=sys.stderr)
        if not arguments:
            return 0
        num_targets = (
            settings.num_targets or checkpoint.architecture.num_targets
        )
        complain = _Complaints()
        files = prediction.list_files(arguments, complain)
        has_capsules = keys.CAPSULES in network.output
        if settings.format == "json":
            printer = prediction.JsonLines(names, has_capsules)
        else:
            printer = prediction.Table(files, names, num_targets, has_capsules)
        for predicted in prediction.predict_files(
            files, network, prepare, num_targets, complain
        ):
            printer.print(predicted)
        return 1 if complain.number else 0


def _preparation(settings, checkpoint):
    """How files become what the network takes, see `prediction.preparation`."""
    from evaluation import prediction
    from input_data import registry

    architecture = checkpoint.architecture
    shape = architecture.shape
    data_set = registry.find(
        prediction.trained_on(checkpoint, settings.dataset)
    )
    if shape.depth not in (1, 3):
        print(
            f"Note: the network takes {shape.depth} views of an object; each "
            "image serves as all of them",
            file=sys.stderr,
        )
    # By the objects in the images of the training, whatever is asked for.
    prepare = prediction.preparation(
        checkpoint.training, shape, data_set, architecture.num_targets
    )
    return functools.partial(prepare, invert=settings.invert)


def main(argv):
    """Does what the flags ask for; a user's error is one line and exit 1."""
    # TensorFlow tells every step of an export.
    logging.set_verbosity(logging.WARNING)
    with told("predict.py"):
        return run(flags.FLAGS, argv[1:])


if __name__ == "__main__":
    define_flags()
    app.run(main, flags_parser=parse_or_explain)
