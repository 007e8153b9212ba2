"""affNIST."""
