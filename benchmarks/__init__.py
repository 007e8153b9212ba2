"""Benchmarks, each a command: `python -m benchmarks.NAME_benchmark`."""

from common import load_backend

load_backend()
