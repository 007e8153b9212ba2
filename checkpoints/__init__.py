"""Checkpoints, ours and TF1's: written whole, opened, verified."""
