"""Runs experiment.py to compare models and to reproduce published results."""
