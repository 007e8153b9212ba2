"""What makes record files and affNIST."""
