"""Training: from a config to checkpoints and summaries."""
