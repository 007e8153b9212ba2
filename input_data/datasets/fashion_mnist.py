"""Fashion-MNIST, from idx files named as those of MNIST, or from TFDS.

Source: H. Xiao, K. Rasul, R. Vollgraf, "Fashion-MNIST: a novel image dataset
for benchmarking machine learning algorithms", 2017.
"""

import dataclasses

from input_data.datasets.mnist import read_split
from input_data.images import make_pipeline

CLASS_NAMES = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)


def load(split, config):
    """The pipeline of one split."""
    data = read_split(split, config.data_dir, "fashion_mnist")
    data = dataclasses.replace(data, class_names=CLASS_NAMES)
    return make_pipeline(data, config)
