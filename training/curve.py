"""Learning curves as CSV files: what TensorBoard's curves are, for others."""

import pathlib

from old.durable import user_errors, write_file
from old.errors import UserError

FILE = "curve.csv"
_COLUMNS = "step,loss,accuracy"


class Curve:
    """Loss and accuracy by step, in `curve.csv` of a folder of summaries.

    A step that is there already, as after a resume, is replaced.

    Args:
      directory: path, `<summary_dir>/train` or another folder beside it.
    """

    def __init__(self, directory):
        self._path = pathlib.Path(directory) / FILE
        self._points = read(self._path)
        self._is_whole = False  # what is there may end with half a line

    def add(self, step, loss, accuracy):
        """Writes a point.

        Raises:
          UserError: if the file cannot be written.
        """
        is_last = step > max(self._points, default=-1)
        self._points[step] = (float(loss), float(accuracy))
        if is_last and self._is_whole:
            with user_errors(self._path), self._path.open("a") as file:
                file.write(_line(step, *self._points[step]))
        else:
            lines = [_line(s, *self._points[s]) for s in sorted(self._points)]
            content = "".join([f"{_COLUMNS}\n", *lines])
            write_file(self._path, content.encode())
            self._is_whole = True


def _line(step, loss, accuracy):
    return f"{step},{loss:.6g},{accuracy:.6g}\n"


def read(path):
    """Dict from step to (loss, accuracy); empty if there is no such file.

    Raises:
      UserError: for a file that is not a curve or cannot be read.
    """
    try:
        text = pathlib.Path(path).read_text(errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:  # what is there must not be replaced
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    head, *lines = text.split("\n")
    points = {}
    try:
        if head not in (_COLUMNS, ""):
            raise ValueError
        for line in lines[:-1]:  # behind the last newline is half a line
            step, loss, accuracy = line.split(",")
            points[int(step)] = (float(loss), float(accuracy))
    except ValueError:
        raise UserError(
            f"{path} is not a learning curve, a table of {_COLUMNS}: move it "
            "away"
        ) from None
    return points
