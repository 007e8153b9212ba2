"""Training, checkpoints, evaluation and ensembles."""
