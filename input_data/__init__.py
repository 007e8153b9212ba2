"""Data sets as tf.data pipelines; `features` describes their batches.

This file imports nothing, so that `input_data.features` needs no TensorFlow.
"""
