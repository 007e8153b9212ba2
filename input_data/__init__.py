"""Data sets as tf.data pipelines; `keys` describes their batches.

This file imports nothing, so that `input_data.keys` needs no TensorFlow.
"""
