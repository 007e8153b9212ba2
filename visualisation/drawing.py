"""What all figures share: grids of images, colors, axes and PNG files."""

import io

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

PRINT_DPI = 200
SCREEN_DPI = 120
WRONG_COLOR = "crimson"
STYLE = {
    "font.size": 8,
    "axes.titlesize": 8,
    "figure.titlesize": 10,
    "text.parse_math": False,  # class names may contain a $
}
_CELL_INCHES = 0.62
_CHARACTER_INCHES = 0.065  # of text at 8 points
_LABEL_POINTS = 3.5
_LONGEST_NAME = 14


def to_rgb(image):
    """Converts an image of any depth and range to RGB.

    Args:
      image: float [H, W, C]. One channel becomes gray, three are colors, any
        other number is shown side by side in gray. Images with values outside
        of [0, 1], such as standardized ones, are scaled to [0, 1].

    Returns:
      float array [H, W or W * C, 3], values in [0, 1].
    """
    lowest, highest = image.min(), image.max()
    if lowest < 0 or highest > 1:
        image = (image - lowest) / max(highest - lowest, 1e-12)
    if image.shape[-1] == 3:
        return image
    side_by_side = np.concatenate(np.moveaxis(image, -1, 0), axis=1)
    return np.repeat(side_by_side[..., None], 3, axis=-1)


def two_colors(first, second):
    """Merges two gray images: the first in magenta, the second in green.

    Both together are white. Readers with color blindness cannot tell the red
    and green of the paper's figure 5 apart.

    Args:
      first, second: float [H, W, C] in [0, 1]; channels are averaged.

    Returns:
      float array [H, W, 3].
    """
    magenta, green = first.mean(axis=-1), second.mean(axis=-1)
    return np.stack([magenta, green, magenta], axis=-1)


def image_grid(columns, headings, title, corner="", wrong=()):
    """Draws images in a grid, with labels for rows and columns.

    Args:
      columns: list of dicts of equal keys, from row label to image [H, W, C],
        or None for an empty place. Rows without any image are left out.
      headings: list of strings, one above each column.
      title: string.
      corner: string, the label of the headings.
      wrong: indices of the columns with wrong predictions.

    Returns:
      The bytes of a PNG file.
    """
    labels = [
        label
        for label in columns[0]
        if any(column[label] is not None for column in columns)
    ]
    height, width, _ = to_rgb(columns[0][labels[0]]).shape
    lines = [line for heading in headings for line in heading.splitlines()]
    cell = max(_CELL_INCHES, _CHARACTER_INCHES * (max(map(len, lines)) + 1))
    size = cell * len(columns) + 1, cell * height / width * len(labels) + 1
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=size, layout="constrained")
        figure.get_layout_engine().set(
            w_pad=0.01, h_pad=0.01, wspace=0, hspace=0
        )
        figure.suptitle(title)
        grid = figure.subplots(len(labels), len(columns), squeeze=False)
        for label, row in zip(labels, grid, strict=True):
            _write_left(row[0], label, 0.5, 0, "center")
            for axes, column in zip(row, columns, strict=True):
                axes.set_axis_off()
                if column[label] is not None:
                    axes.imshow(to_rgb(column[label]), interpolation="nearest")
        _write_left(grid[0, 0], corner, 1, _LABEL_POINTS, "bottom")
        for index, heading in enumerate(headings):
            color = WRONG_COLOR if index in wrong else "black"
            grid[0, index].set_title(heading, color=color, pad=_LABEL_POINTS)
        return png(figure)


def _write_left(axes, text, y, points, alignment):
    axes.annotate(
        text,
        (0, y),
        (-_LABEL_POINTS, points),
        xycoords="axes fraction",
        textcoords="offset points",
        horizontalalignment="right",
        verticalalignment=alignment,
    )


def make_logarithmic(axis):
    """Makes a `matplotlib.axis.Axis` logarithmic, with plain numbers."""
    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    axis.set_major_locator(LogLocator(subs=(1, 2, 3, 5)))
    axis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))
    axis.set_minor_formatter(NullFormatter())


def png(figure, dpi=PRINT_DPI):
    """The bytes of a PNG file of a `matplotlib.figure.Figure`."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi, bbox_inches="tight")
    return buffer.getvalue()


def truncate(name):
    """A class name that is short enough for a figure."""
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[: _LONGEST_NAME - 1]}…"
