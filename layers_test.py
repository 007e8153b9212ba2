"""Runs the tests of the layers:  python layers_test.py"""

import pathlib
import sys

if __name__ == "__main__":
    try:
        import pytest
    except ModuleNotFoundError as error:
        command = "pip install -r requirements-dev.txt"
        sys.exit(f"layers_test.py: {error}: {command}")
    folder = pathlib.Path(__file__).with_name("layers")
    sys.exit(pytest.main([str(folder), *sys.argv[1:]]))
