"""Comparisons and reproductions: runs of experiment.py and their tables."""
