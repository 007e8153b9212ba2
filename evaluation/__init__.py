"""Evaluation of checkpoints, predictions of files, export."""
