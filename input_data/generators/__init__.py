"""Generators of record files and of affNIST."""
