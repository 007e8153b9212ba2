"""Reads labels.csv, which lists any number of classes for each image."""

import csv

from common.errors import UserError, reading


def read_labels(folder):
    """Dict from image path to list of classes, or None without labels.csv.

    The first row must begin with "file", or labels.csv is ignored. Other rows
    are the path of an image in the folder, then its classes, if any.
    """
    path = folder / "labels.csv"
    if not path.is_file():
        return None
    with reading(path), open(path, newline="", encoding="utf-8-sig") as file:
        rows = [[cell.strip() for cell in row] for row in csv.reader(file)]
    if not rows or rows.pop(0)[:1] != ["file"]:
        print(f"Note: {path} is ignored, as it does not begin with 'file,'")
        return None
    rows = sorted(filter(any, rows))
    labels = {folder / name: [*filter(None, found)] for name, *found in rows}
    if len(labels) < len(rows):
        raise UserError(f"{path} names an image twice")
    return labels
