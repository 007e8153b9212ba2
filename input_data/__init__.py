"""Data sets. This file imports nothing: `keys` needs no TensorFlow."""
