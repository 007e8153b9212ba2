"""Benchmarks, each a command: `python -m benchmarks.NAME_benchmark`."""

import importlib.util

from common import load_backend

if importlib.util.find_spec("tensorflow"):  # not for accelerator_benchmark
    load_backend()
