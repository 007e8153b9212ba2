"""The data sets: tf.data pipelines under one feature contract.

This file imports nothing, so that `input_data.features` can be used where
TensorFlow is not installed.
"""
