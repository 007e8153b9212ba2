"""What the fastest way to compute depends on."""

import os

from keras import backend


def is_tensorflow_on_cpu():
    """Whether layers are computed by TensorFlow and oneDNN, on CPUs.

    What is chosen by this was measured there and is slower, or not measured,
    elsewhere.
    """
    if backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    has_onednn = os.environ.get("TF_ENABLE_ONEDNN_OPTS") != "0"
    return has_onednn and not tf.config.list_logical_devices("GPU")
