"""Options of the tests."""

import importlib.util
import os

# As common/__init__.py sets it, before TensorFlow is imported.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
collect_ignore = []
if importlib.util.find_spec("apache_beam") is None:
    collect_ignore.append("input_data/mnist/mnist_shift_beam_test.py")


def pytest_make_parametrize_id(val, argname):
    """Leaves bytes, which differ between processes, out of test names."""
    return argname if isinstance(val, bytes) else None
