"""Imports follow the rows of the picture in docs/architecture.md."""

import pathlib
import re

import pytest

from testing.sources import imports

ROOT = pathlib.Path(__file__).parent
PICTURE = ROOT / "docs" / "figures" / "architecture.svg"
# Beside config.py in the picture, and the one exception of the page.
ALLOWED = {("visualization", "config")}


def rows():
    """Name of a package or a module -> vertical position of its row."""
    heading = r'y="(\d+)" text-anchor="middle" font-weight="bold">([a-z_]+)'
    found = re.findall(heading, PICTURE.read_text())
    return {name: int(position) for position, name in found}


ROWS = rows()
MODULES = "config", "resolve"
PACKAGES = sorted(set(ROWS) - {"commands", *MODULES})
COMMANDS = sorted(
    path.stem
    for path in ROOT.glob("*.py")
    if path.stem not in (*MODULES, "conftest", "setup")
    and not path.stem.endswith("_test")
)


def violations(name, source):
    """Imports of a file of a package that are not from the rows below it."""
    row = ROWS.get(name, ROWS["commands"])
    ours = {path.stem for path in ROOT.iterdir()} - {name}
    return [
        imported
        for imported in sorted(imports(source) & ours)
        if (name, imported) not in ALLOWED
        and (imported not in ROWS or ROWS[imported] <= row)
    ]


def product_files(name):
    """The files of a package, or the one of a command or a module."""
    paths = [*(ROOT / name).rglob("*.py")] or [ROOT / f"{name}.py"]
    return [path for path in paths if not path.stem.endswith("_test")]


@pytest.mark.parametrize("name", [*PACKAGES, *MODULES, *COMMANDS])
def test_imports_come_from_rows_below(name):
    wrong = {
        str(path.relative_to(ROOT)): found
        for path in product_files(name)
        if (found := violations(name, path.read_text()))
    }
    assert wrong == {}


def test_the_picture_has_every_package():
    unlisted = {"benchmarks", "examples", "testing"}
    packages = {path.parent.name for path in ROOT.glob("*/*.py")}
    assert packages - unlisted == set(PACKAGES)
    assert ROWS["commands"] < min(ROWS[name] for name in PACKAGES)
