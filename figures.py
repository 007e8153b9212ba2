"""Draws figures of a trained capsule network, from its checkpoint.

  python figures.py reconstructions perturbations routing \
    --checkpoint=/tmp/digits/train/model.ckpt-300 --output_dir=/tmp/figures

Names of figures:
  reconstructions  input, target and remake, predicted right and wrong
                   (figure 3 of the paper)
  perturbations    each dimension of a class capsule moved up and down
                   (figure 4)
  multimnist       two overlapping digits taken apart (figure 5)
  routing          coupling coefficients over the image, by iteration
  embedding        class capsules for the projector of TensorBoard

They go to --output_dir; files of the same names there are replaced.
"""

import importlib
import pathlib

from absl import app, flags

import devices
import old.flags
from input_data.options import Options
from old.durable import make_folder, write_files
from old.ending import told
from old.fields import require_known
from old.startup import load_backend
from training.config import Config

# Modules of visualisation, whose `make` draws them.
FIGURES = (
    "reconstructions",
    "perturbations",
    "multimnist",
    "routing",
    "embedding",
)
# Its files are for the projector, not pictures to look at.
_EMBEDDING = "embedding"


def define_flags():
    """Defines the flags: of this command, so when it runs as one."""
    old.flags.define_shown(Config, Options)
    flags.DEFINE_integer(
        "num_examples",
        None,
        "Examples in each figure. Default: reconstructions 6 right and as many "
        "wrong ones, perturbations 10 classes, multimnist 5 and 5, routing 4, "
        "embedding 1000.",
        lower_bound=1,
    )
    flags.DEFINE_string(
        "output_dir",
        None,
        "Folder for the files of the figures.",
        required=True,
    )
    flags.DEFINE_string(
        "summary_dir",
        None,
        "If given: the figures also go to TensorBoard, to "
        "<summary_dir>/figures.",
    )


def draw(names, config, output_dir, num_examples=None):
    """Makes figures and writes them.

    Args:
      names: list of strings, some of `FIGURES`.
      config: `Config`: checkpoint, data, and perhaps `summary_dir`.
      output_dir: path of a folder, made if it is not there.
      num_examples: int, examples in each figure, or None for each one's own
        number.

    Returns:
      List of the paths of the files in `output_dir`.

    Raises:
      UserError: for an unknown name, a checkpoint or data that do not work,
        or a folder that cannot be written.
    """
    for name in names:
        require_known("figure", name, FIGURES)
    import checkpoints
    from evaluation.evaluator import Evaluator
    from visualisation.trained_model import TrainedModel

    # Known before the work, not after it.
    output_dir = make_folder(output_dir)
    summaries = None
    if config.summary_dir:
        summaries = make_folder(pathlib.Path(config.summary_dir) / "figures")
    checkpoint = checkpoints.open(config.checkpoint)
    evaluator = Evaluator(config)
    model, pipeline = evaluator.load(checkpoint)
    dataset = evaluator.settings_for(checkpoint).dataset_name
    title = f"{dataset}, {checkpoint.path.name}"
    subject = TrainedModel(model, pipeline, title)
    counts = {} if num_examples is None else {"num_examples": num_examples}
    paths = []
    for name in dict.fromkeys(names):
        figure = importlib.import_module(f"visualisation.{name}")
        files = figure.make(subject, **counts)
        paths += write_files(output_dir, files)
        if summaries and name == _EMBEDDING:
            write_files(summaries, files)
        elif summaries:
            _write_images(summaries, files, checkpoint.step)
    return paths


def _write_images(folder, files, step):
    """Writes PNG files as images of TensorBoard."""
    from training.summaries import SummaryWriter

    writer = SummaryWriter(folder)
    for name, content in files.items():
        writer.image(pathlib.Path(name).stem, content, step)


def main(argv):
    """Draws the figures of the arguments; a user's error is one line."""
    if len(argv) < 2:
        raise app.UsageError(f"name figures to draw: {', '.join(FIGURES)}")
    with told("figures.py"):
        load_backend()
        with devices.use(devices.Settings(num_processes=1), "figures.py"):
            paths = draw(
                argv[1:],
                old.flags.settings_of(Config, train=False),
                flags.FLAGS.output_dir,
                flags.FLAGS.num_examples,
            )
        print(*paths, sep="\n")


if __name__ == "__main__":
    define_flags()
    app.run(main, flags_parser=old.flags.parse_or_explain)
