"""TensorFlow Datasets."""
