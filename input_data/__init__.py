"""Data sets as tf.data pipelines; `features` describes their batches.

`registry` loads a data set by name; `datasets` has a file for each data set.
`pipeline`, `images` and `pairs` make batches, `transforms` and `augmentation`
change images, `records` reads and writes record files, and `generators` makes
data files for the commands in `mnist`, `affnist` and `norb`.

This file imports nothing: `input_data.features` needs no TensorFlow.
"""
