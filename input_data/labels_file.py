"""labels.csv: any number of classes for each image of a folder."""

import csv
import itertools
import pathlib

from common.errors import UserError, user_errors
from input_data.files import normal_form

# Cells of a file with one column for each class, in lower case.
_VALUES = {"0": 0, "0.0": 0, "false": 0, "1": 1, "1.0": 1, "true": 1}


def read_labels(folder):
    """Reads a folder's labels.csv in one of the two forms of docs/data.md.

    Returns the sorted classes, and a dict from the path of each image to its
    classes; or None without labels.csv. Raises UserError, with the row.
    """
    with user_errors(folder):
        paths = [p for p in folder.iterdir() if p.name.lower() == "labels.csv"]
    if not paths:
        return None
    path = max(paths)
    with user_errors(path), open(path, encoding="utf-8-sig") as file:
        lines = filter(None, (line.rstrip(", \t\n") for line in file))
        # One by one: a quote that is not closed must not swallow other lines.
        rows = [next(csv.reader([line], strict=True)) for line in lines]

    def require(condition, row, rule):
        if not condition:
            raise UserError(f"{path}: {rule}, not {','.join(row)[:99]!r}")

    header, *rows = [[c.strip() for c in row] for row in rows] or [[""]]
    require(header[0] == "file", header, "the first row begins with 'file,'")
    columns = [normal_form(name) for name in header[1:]]
    cells = {cell.lower() for row in rows for cell in row[1:]}
    is_table = columns not in ([], ["label"]) and not cells.isdisjoint(_VALUES)
    labels = {}
    for row in sorted(rows):
        name, names = pathlib.Path(row[0]), row[1:]
        is_inside = name.name and not name.anchor and ".." not in name.parts
        require(is_inside, row, "each row begins with a path in this folder")
        require(folder / name not in labels, row, "no image is named twice")
        require('"' not in "".join(names), row, "quotes enclose whole cells")
        if is_table:
            values = [_VALUES.get(cell.lower()) for cell in names]
            is_right = len(values) == len(columns) and None not in values
            require(is_right, row, f"each of {columns} is 0 or 1")
            names = itertools.compress(columns, values)
        labels[folder / name] = [normal_form(n) for n in names if n]
    classes = columns if is_table else set().union(*labels.values())
    return sorted(classes), labels
