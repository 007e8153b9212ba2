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
_LINE_INCHES = 0.15
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
    """Merges two images: the first in magenta, the second in green.

    Both together are white. Readers with color blindness cannot tell the red
    and green of the paper's figure 5 apart.

    Args:
      first: float [H, W, C] in [0, 1]; channels are averaged.
      second: float [H, W, C] in [0, 1].

    Returns:
      float array [H, W, 3].
    """
    magenta, green = first.mean(axis=-1), second.mean(axis=-1)
    return np.stack([magenta, green, magenta], axis=-1)


def image_grid(rows, title, titles=(), labels=(), wrong=(), dpi=PRINT_DPI):
    """Draws images in a grid.

    Args:
      rows: list of lists of images [H, W, C] of one size; None leaves a place
        empty.
      title: string.
      titles: list of strings above the images, from the upper left.
      labels: list of strings to the left of the rows.
      wrong: indices of the titles to be red.
      dpi: pixels per inch.

    Returns:
      The bytes of a PNG file.
    """
    height, width, _ = to_rgb(rows[0][0]).shape
    lines = [text.splitlines() for text in titles]
    longest = max((len(line) for text in lines for line in text), default=0)
    cell = max(_CELL_INCHES, _CHARACTER_INCHES * (longest + 1))
    title_rows = -(-len(titles) // len(rows[0]))
    gaps = _LINE_INCHES * max(map(len, lines), default=0) * title_rows
    size = cell * len(rows[0]), cell * height / width * len(rows) + gaps
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=np.add(size, 1), layout="constrained")
        figure.get_layout_engine().set(
            w_pad=0.01, h_pad=0.03, wspace=0, hspace=0
        )
        figure.suptitle(title)
        grid = figure.subplots(
            len(rows),
            len(rows[0]),
            squeeze=False,
            subplot_kw={"xticks": [], "yticks": [], "frame_on": False},
        )
        for all_axes, row in zip(grid, rows, strict=True):
            for axes, image in zip(all_axes, row, strict=True):
                if image is not None:
                    axes.imshow(to_rgb(image), interpolation="nearest")
        for index, text in enumerate(titles):
            color = WRONG_COLOR if index in wrong else "black"
            grid.flat[index].set_title(text, color=color, pad=3)
        for axes, label in zip(grid[:, 0], labels, strict=False):
            axes.set_ylabel(label, rotation=0, ha="right", va="center")
        return png(figure, dpi)


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
