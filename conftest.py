"""Settings of all tests."""

import os
import random

import numpy as np
import pytest

# As common/__init__.py sets it, before TensorFlow is imported.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")


@pytest.fixture(autouse=True)
def same_numbers_in_any_order(request):
    """Seeds the initial weights and the module's generator for each test."""
    random.seed(0)
    if hasattr(request.module, "RNG"):
        request.module.RNG.bit_generator.state = np.random.PCG64(0).state
