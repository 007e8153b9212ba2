"""CIFAR-10."""
