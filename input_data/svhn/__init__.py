"""SVHN."""
