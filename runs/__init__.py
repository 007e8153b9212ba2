"""Comparisons and published results: runs of experiment.py and their tables."""
