"""Settings of all tests."""

import os
import random
import sys

import numpy as np
import pytest

# As common/__init__.py sets it, before TensorFlow is imported.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")


@pytest.fixture(autouse=True)
def same_state_in_any_order(request):
    """Seeds the initial weights and the module's generator for each test.

    Afterwards restores Keras' global dtypes.
    """
    random.seed(0)
    if hasattr(request.module, "RNG"):
        request.module.RNG.bit_generator.state = np.random.PCG64(0).state
    yield
    if keras := sys.modules.get("keras"):
        keras.config.set_floatx("float32")
        keras.config.set_dtype_policy("float32")


@pytest.fixture
def shallow(monkeypatch):
    """The default backbone of `photo_capsule` is quick to trace."""
    from testing.small_models import shallow_backbone

    monkeypatch.setattr("keras.applications.MobileNetV3Small", shallow_backbone)
