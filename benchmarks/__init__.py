"""Measurements, each a command: `python benchmarks/NAME_benchmark.py`."""

import os

# TensorFlow's notes would stand between the rows.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# As old/startup.py sets it for the commands.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
