"""Draws figures of a trained capsule network, from its checkpoint.

  python figures.py reconstructions perturbations routing \
    --checkpoint=/tmp/digits/train/model.ckpt-300 --output_dir=/tmp/figures

Figures: reconstructions, perturbations, multimnist and routing, see
docs/figures.md.
"""

import pathlib

from absl import flags as absl_flags

from common import flags, load_backend
from common.errors import UserError
from common.files import make_folder
from config import EVALUATION_FLAGS, Config

# Functions of visualization.capsule_figures: default number of examples.
FIGURES = {
    "reconstructions": 6,
    "perturbations": 10,
    "multimnist": 5,
    "routing": 4,
}


def draw(names, config, num_examples=None):
    """Draws the figures in the list `names` for the network of a checkpoint.

    Returns a dict from file name to content, and the step of the checkpoint.
    """
    for name in names:
        flags.require_known("figure", name, FIGURES)
    if config.checkpoint is None:
        raise UserError("--checkpoint is required")
    # Imported here, as in `main`, so that --help does not wait for TensorFlow.
    from training.evaluate import Evaluator
    from training.formats import open_checkpoint
    from visualization import capsule_figures
    from visualization.trained_model import TrainedModel

    checkpoint = open_checkpoint(config.checkpoint, config.model)
    config, model, pipeline = Evaluator(config).load(checkpoint)
    title = f"{config.dataset}, {checkpoint.path.name}"
    trained = TrainedModel(model, pipeline, title, pipeline.spec.names)
    files = {}
    for name in names:
        draw_figure = getattr(capsule_figures, name)
        files |= draw_figure(trained, num_examples or FIGURES[name])
    return files, checkpoint.step


def write_summaries(summary_dir, files, step):
    """Writes pictures as summaries."""
    from training.summaries import SummaryWriter

    folder = make_folder(pathlib.Path(summary_dir) / "figures")
    writer = SummaryWriter(folder)
    for name, content in files.items():
        writer.image(pathlib.Path(name).stem, content, step)


def main(arguments):
    """Draws the figures that the arguments name; prints the files' paths."""
    if not arguments:
        raise UserError(f"give names of figures: {', '.join(FIGURES)}")
    options = absl_flags.FLAGS
    output_dir = make_folder(options.output_dir)
    config = flags.settings_of(Config, train=False, num_processes=1)
    load_backend()
    from training import devices
    from visualization.drawing import also_as, write_files

    with devices.use(config):
        files, step = draw(arguments, config, options.num_examples)
    all_files = also_as(options.figure_format, files)
    print(*write_files(output_dir, all_files), sep="\n")
    if options.summary_dir:
        write_summaries(options.summary_dir, files, step)


if __name__ == "__main__":
    names = "checkpoint", "hparams_override", "model"
    flags.define(Config, (*EVALUATION_FLAGS, *names))
    absl_flags.DEFINE_enum(
        *("figure_format", None, ["pdf", "svg"]),
        "A second format of the figures, in addition to PNG.",
    )
    absl_flags.DEFINE_integer(
        "num_examples",
        None,
        "Examples in each figure. Default: reconstructions 6 right and 6 wrong "
        "predictions, perturbations 10 classes, multimnist 5 and 5, routing 4.",
        lower_bound=1,
    )
    absl_flags.DEFINE_string(
        "output_dir", None, "Folder for the files.", required=True
    )
    absl_flags.DEFINE_string(
        "summary_dir",
        None,
        "If given, the figures also go to TensorBoard, to "
        "<summary_dir>/figures.",
    )
    flags.run(main, takes_arguments=True)
