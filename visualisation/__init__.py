"""Figures of a trained capsule network: numbers first, then pictures.

One file for each figure. Each has a function `make` that returns the files of
the figure, a dict from file name to bytes.
"""
