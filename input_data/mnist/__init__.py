"""MNIST."""
