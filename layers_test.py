"""Runs the tests of the layers:  python layers_test.py"""

import pathlib
import sys

import pytest

if __name__ == "__main__":
    folder = pathlib.Path(__file__).with_name("layers")
    sys.exit(pytest.main([str(folder), *sys.argv[1:]]))
