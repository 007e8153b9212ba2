"""labels.csv: the classes of images that have any number of them."""

import csv

from common.errors import UserError, reading


def read_labels(folder):
    """Dict from the path of an image to its classes; None without the file.

    The first row begins with "file", each other one with the path of an image
    in the folder; its classes follow, perhaps none.
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
