"""Writes the files of figures and tables."""

import pathlib

from common.files import write_file
from visualization.drawing import Picture, saved


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
