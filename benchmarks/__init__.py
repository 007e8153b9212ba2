"""Benchmarks, each a command: `python benchmarks/NAME_benchmark.py`."""

from common.startup import load_backend

load_backend()
