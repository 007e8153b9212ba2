"""Style, colors, grids of images and PNG files for all figures."""

import io
import pathlib

import numpy as np
from matplotlib import style
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from common.files import write_file

_STYLE = {
    "axes.titlesize": 8,
    "figure.dpi": 200,
    "figure.titlesize": 10,
    "font.size": 8,
    "savefig.bbox": "tight",
    "text.parse_math": False,  # class names may contain a $
}
# Decorates what draws: the user's settings change nothing, nor are changed.
styled = style.context(["default", _STYLE])
_CELL_INCHES = 0.62
_CHARACTER_INCHES = 0.065  # of text at 8 points
_LINE_INCHES = 0.15
_LONGEST_NAME = 14
# Eight colors that color-blind readers can tell apart (Okabe and Ito 2008, with
# gray for yellow), and sixteen markers, for print.
_COLORS = "#000000 #e69f00 #56b4e9 #009e73 #808080 #0072b2 #d55e00 #cc79a7"
_MARKERS = "os^DvPX*<>ph+x1|"


def to_rgb(image):
    """Converts an image [H, W, C] to RGB [H, W or W * C, 3] in [0, 1].

    One channel becomes gray, three become colors; two or more than three are
    placed side by side in gray. If a value is outside [0, 1], all are scaled.
    """
    lowest, highest = image.min(), image.max()
    if lowest < 0 or highest > 1:
        image = (image - lowest) / max(highest - lowest, 1e-12)
    if image.shape[-1] == 3:
        return image
    side_by_side = np.concatenate(np.moveaxis(image, -1, 0), axis=1)
    return np.repeat(side_by_side[..., None], 3, axis=-1)


def make_grid(images, columns, title, titles, labels=(), wrong=()):
    """A `Figure` with rows of `columns` images, and the array of its `Axes`.

    Images are [H, W, C], of one size; None leaves a place empty. `titles[i]`
    is written above image i, in red if i is in `wrong`; `labels[i]` is written
    to the left of row i.
    """
    rows, title_rows = (-(-len(of) // columns) for of in (images, titles))
    height, width, _ = to_rgb(images[0]).shape
    longest = max(map(len, "\n".join(titles).splitlines()))
    cell = max(_CELL_INCHES, _CHARACTER_INCHES * (longest + 1))
    title_lines = title_rows * len(titles[0].splitlines())
    inches_wide = 1 + cell * columns
    inches_high = 1 + cell * height / width * rows + _LINE_INCHES * title_lines
    figure = Figure(figsize=(inches_wide, inches_high), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.01, h_pad=0.03, wspace=0, hspace=0)
    figure.suptitle(title)
    no_axes = {"xticks": [], "yticks": [], "frame_on": False}
    grid = figure.subplots(rows, columns, squeeze=False, subplot_kw=no_axes)
    for axes, image in zip(grid.flat, images, strict=False):
        if image is not None:
            axes.imshow(to_rgb(image), interpolation="nearest")
    for index, text in enumerate(titles):
        color = "crimson" if index in wrong else "black"
        grid.flat[index].set_title(text, color=color, pad=3)
    for axes, label in zip(grid[:, 0], labels, strict=False):
        axes.set_ylabel(label, rotation=0, ha="right", va="center")
    return figure, grid


@styled
def image_grid(*arguments, **keywords):
    """A PNG file of images in rows, see `make_grid`."""
    return png(make_grid(*arguments, **keywords)[0])


def make_logarithmic(axis, subs=(1, 2, 3, 5, 7)):
    """Makes a Matplotlib `Axis` logarithmic: plain labels at `subs` * 10^n."""
    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    axis.set_major_locator(LogLocator(subs=subs))
    axis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))
    axis.set_minor_formatter(NullFormatter())


def distinguish_lines(axes):
    """Gives up to 16 lines different colors, markers and dashes."""
    colors, dashes = 2 * _COLORS.split(), 8 * ["-"] + 8 * ["--"]
    axes.set_prop_cycle(color=colors, marker=[*_MARKERS], linestyle=dashes)


class Picture(bytes):
    """The bytes of a PNG file; the attribute `figure` is the drawn `Figure`."""


def png(figure):
    """The `Picture` of a `matplotlib.figure.Figure`."""
    picture = Picture(saved(figure, "png"))
    picture.figure = figure
    return picture


@styled
def saved(figure, figure_format):
    """The content of a file of a figure, as bytes."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=figure_format)
    return buffer.getvalue()


def also_as(figure_format, files):
    """Returns `files`, and each `Picture` also in `figure_format` if given."""
    others = {}
    for name, content in files.items():
        if figure_format and isinstance(content, Picture):
            other_name = f"{name.removesuffix('png')}{figure_format}"
            others[other_name] = saved(content.figure, figure_format)
    return files | others


def write_files(folder, files):
    """Writes a dict from file name to content; returns the paths."""
    paths = [pathlib.Path(folder, name) for name in files]
    for path, content in zip(paths, files.values(), strict=True):
        write_file(path, content)
    return paths


def truncate(name):
    """A class name, cut to fit into a figure."""
    is_long = len(name) > _LONGEST_NAME
    return f"{name[: _LONGEST_NAME - 1]}…" if is_long else name
