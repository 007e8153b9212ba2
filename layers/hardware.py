"""What the fastest way to compute depends on."""

import functools
import pathlib

from keras import backend


def is_tensorflow_on_cpu() -> bool:
    """Whether layers are computed by TensorFlow on CPUs.

    What is chosen by this was measured there and is slower, or not measured,
    elsewhere.
    """
    if backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    return not tf.config.list_logical_devices("GPU")


@functools.cache
def cpu_has_bfloat16_products() -> bool:
    """Whether this processor can multiply bfloat16 and add in float32.

    oneDNN needs AVX-512 for it. Where Linux does not name the instructions,
    they are taken to be there.
    """
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return True
    flags = [line for line in lines if line.startswith("flags")]
    return not flags or "avx512f" in flags[0].split()
