"""The learning curve of a training: loss and accuracy, as a PNG file."""

import pathlib

import matplotlib
from matplotlib.figure import Figure

from old.durable import write_file
from training import curve
from visualisation.drawing import SCREEN_DPI, STYLE, make_logarithmic, png

FILE = "learning_curve.png"
_INCHES = (8, 3.2)
_PARTS = ("test", "train", "validation")


def read(summary_dir):
    """Dict from part to its points, see `curve.read`, of those that are there.

    Raises:
      UserError: if one is not a curve.
    """
    parts = {
        part: curve.read(pathlib.Path(summary_dir) / part / curve.FILE)
        for part in _PARTS
    }
    return {part: points for part, points in parts.items() if points}


def write(summary_dir):
    """Draws the curves of all parts of a run, training and evaluations.

    Args:
      summary_dir: path; what is in `curve.csv` of its folders train, test and
        validation is drawn to `learning_curve.png` in it, which is replaced.

    Raises:
      UserError: if the file cannot be written, or one is not a curve.
    """
    summary_dir = pathlib.Path(summary_dir)
    content = draw(read(summary_dir), summary_dir.resolve().name)
    write_file(summary_dir / FILE, content)


def draw(parts, title):
    """The bytes of a PNG file.

    Args:
      parts: dict from name to the points of a curve, as `curve.read` gives
        them.
      title: string.
    """
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=_INCHES, layout="constrained")
        figure.suptitle(title)
        for place, name in enumerate(("loss", "accuracy")):
            axes = figure.add_subplot(1, 2, place + 1)
            for part, points in parts.items():
                steps = sorted(points)
                axes.plot(
                    steps,
                    [points[step][place] for step in steps],
                    # Evaluations are few, and a single one is no line.
                    marker="" if part == "train" else "o",
                    markersize=3,
                    linewidth=1,
                    label=part,
                )
            axes.set_title(name)
            axes.set_xlabel("step")
            axes.grid(alpha=0.3)
            axes.legend()
        make_logarithmic(figure.axes[0].yaxis)
        return png(figure, SCREEN_DPI)
