"""What all figures are drawn with: mosaics of images, labels, PNG files."""

import io
import math

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.textpath import TextPath
from matplotlib.ticker import LogLocator, NullFormatter

from old.errors import UserError

# Enough for print at the width of a page; enough for TensorBoard.
PRINT_DPI = 200
SCREEN_DPI = 120
# White pixels between the images of a mosaic.
GAP = 2
WRONG_COLOUR = "crimson"
STYLE = {
    "font.size": 8,
    "axes.titlesize": 9,
    "figure.titlesize": 10,
    "text.parse_math": False,  # a name may have a $ in it
}
_CELL_INCHES = 0.62
_BETWEEN_HEADINGS_INCHES = 0.1
_LONGEST_NAME = 14
_POINTS_PER_INCH = 72
# From a label to the images.
_LABEL_POINTS = 3.5
# Pixels on a side at which Matplotlib gives up, with some left for labels.
_MAX_PIXELS = 2**16 - 2**12


def to_rgb(image):
    """An image of any depth and range as one that can be shown.

    Args:
      image: float [H, W, C]. One channel becomes grey, three are colours, any
        other number stand side by side in grey. Standardised images, whose
        values leave [0, 1], are scaled to it; others stay as they are.

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


def two_colours(first, second):
    """Two grey images in one: the first in magenta, the second in green.

    Where both are bright it is white. Unlike the red and green of the paper's
    figure 5, colour-blind readers can tell these apart.

    Args:
      first: float [H, W, C] in [0, 1]; channels are averaged.
      second: float [H, W, C] in [0, 1].

    Returns:
      float array [H, W, 3].
    """
    magenta, green = first.mean(axis=-1), second.mean(axis=-1)
    return np.stack([magenta, green, magenta], axis=-1)


def mosaic(rows):
    """Images in rows and columns, white lines between them.

    Args:
      rows: list of rows, each a list of equally many RGB images [H, W, 3] of
        one size, or None for an empty place.

    Returns:
      float array [height, width, 3].
    """
    height, width, _ = next(
        i for row in rows for i in row if i is not None
    ).shape
    step_y, step_x = height + GAP, width + GAP
    canvas = np.ones((len(rows) * step_y - GAP, len(rows[0]) * step_x - GAP, 3))
    for y, row in enumerate(rows):
        for x, image in enumerate(row):
            if image is not None:
                top, left = y * step_y, x * step_x
                canvas[top : top + height, left : left + width] = image
    return canvas


def mosaic_png(rows, title, row_labels, headings, wrong_columns=()):
    """A mosaic with a title, a label for each row and lines above columns.

    Args:
      rows: as of `mosaic`.
      title: string.
      row_labels: list of strings.
      headings: dict from the label of a line to its strings, one for each
        column.
      wrong_columns: numbers of the columns whose lines are shown as an error.

    Returns:
      The bytes of a PNG file.

    Raises:
      UserError: if the picture would be too large for a file.
    """
    canvas = mosaic(rows)
    height, width, _ = canvas.shape
    columns = len(rows[0])
    with matplotlib.rc_context(STYLE):
        cell_inches = max(
            _CELL_INCHES,
            _BETWEEN_HEADINGS_INCHES
            + max(_inches(text) for line in headings.values() for text in line),
        )
        inches_per_pixel = cell_inches * columns / width
        figure = Figure(
            figsize=(width * inches_per_pixel, height * inches_per_pixel)
        )
        # The whole figure: labels stand around it.
        axes = figure.add_axes((0, 0, 1, 1))
        axes.imshow(canvas, interpolation="nearest")
        axes.set_title(title, pad=8)
        axes.set_yticks(_centres(len(rows), height), row_labels)
        lines = zip(*headings.values(), strict=True)
        axes.set_xticks(_centres(columns, width), map("\n".join, lines))
        axes.xaxis.tick_top()
        axes.tick_params(length=0, pad=_LABEL_POINTS)
        axes.annotate(
            "\n".join(headings),
            (0, 1),
            (-_LABEL_POINTS, _LABEL_POINTS),
            xycoords="axes fraction",
            textcoords="offset points",
            horizontalalignment="right",
            verticalalignment="bottom",
        )
        for spine in axes.spines.values():
            spine.set_visible(False)
        for number in wrong_columns:
            axes.get_xticklabels()[number].set_color(WRONG_COLOUR)
        return png(figure)


def right_beside_wrong_png(columns, title, headings, num_right):
    """A mosaic of examples, one column each, the wrong ones on the right.

    Args:
      columns: list of dicts of equal keys, from row label to RGB image, or
        None for an empty place; rows without any image are left out.
      title: string.
      headings: list of dicts of equal keys, for each column the text of each
        line above it.
      num_right: int, how many of the columns are of right predictions.

    Returns:
      The bytes of a PNG file.

    Raises:
      UserError: if the picture would be too large for a file.
    """
    rows = {name: [column[name] for column in columns] for name in columns[0]}
    rows = {
        name: images
        for name, images in rows.items()
        if any(image is not None for image in images)
    }
    return mosaic_png(
        list(rows.values()),
        title,
        list(rows),
        {line: [heading[line] for heading in headings] for line in headings[0]},
        wrong_columns=range(num_right, len(columns)),
    )


def make_logarithmic(axis):
    """Makes an axis logarithmic, its ticks plain numbers.

    Matplotlib's own are formulas, which `STYLE` leaves as they are.

    Args:
      axis: `matplotlib.axis.Axis`.
    """

    def text(x, position):
        low, high = axis.get_view_interval()
        is_power = round(math.log10(x), 6).is_integer()
        if high > 100 * low and not is_power:
            return ""  # there would be too many
        return f"{x:,.10g}"

    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    axis.set_major_locator(LogLocator(subs=(1, 2, 3, 5)))
    axis.set_major_formatter(text)
    axis.set_minor_formatter(NullFormatter())


def png(figure, dpi=PRINT_DPI):
    """The bytes of a PNG file of a `matplotlib.figure.Figure`.

    Args:
      figure: `matplotlib.figure.Figure`.
      dpi: int, dots per inch.

    Returns:
      bytes.

    Raises:
      UserError: if it has too many pixels.
    """
    if dpi * max(figure.get_size_inches()) >= _MAX_PIXELS:
        raise UserError("so many images do not fit in a picture: choose fewer")
    buffer = io.BytesIO()
    # As large as labels of any length need.
    figure.savefig(buffer, format="png", dpi=dpi, bbox_inches="tight")
    return buffer.getvalue()


def shortened(name):
    """A class name that is not too long for a picture."""
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[: _LONGEST_NAME - 1]}…"


def _inches(text):
    """How wide a line of text is."""
    path = TextPath((0, 0), text, size=STYLE["font.size"])
    return path.get_extents().width / _POINTS_PER_INCH


def _centres(count, size):
    """Middles of `count` cells that fill `size` pixels, gaps between them."""
    step = (size + GAP) / count
    return [number * step + (step - GAP - 1) / 2 for number in range(count)]
