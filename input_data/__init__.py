"""The data sets: tf.data pipelines under one feature contract.

`registry` loads one by its name; `datasets` has one file for each, `formats`
the kinds of files that they read, `transforms` what is done to images, and
`generators` what makes record and .mat files. The commands that make them
stand in `mnist`, `affnist` and `norb`.

This file imports nothing, so that `input_data.features` can be used where
TensorFlow is not installed.
"""
