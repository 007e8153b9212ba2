"""Options of the tests."""

import importlib.util
import os
import random

import numpy as np
import pytest

# As common/__init__.py sets it, before TensorFlow is imported.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
collect_ignore = []
if importlib.util.find_spec("apache_beam") is None:
    collect_ignore.append("input_data/mnist/mnist_shift_beam_test.py")


@pytest.fixture(autouse=True)
def same_numbers_in_any_order(request):
    """Seeds the initial weights and the module's generator for each test."""
    random.seed(0)
    if hasattr(request.module, "RNG"):
        request.module.RNG.bit_generator.state = np.random.PCG64(0).state


def pytest_make_parametrize_id(val, argname):
    """Leaves bytes, which differ between processes, out of test names."""
    return argname if isinstance(val, bytes) else None
