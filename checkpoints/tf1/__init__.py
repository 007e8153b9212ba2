"""TF1 checkpoints of the reference: reading, writing, converting."""
