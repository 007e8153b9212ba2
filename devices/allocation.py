"""Memory that is freed is kept for what comes next."""

import ctypes
import sys

import keras

# Of glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_SETTINGS = {
    _ARENA_MAX: 1,  # others may not grow beyond 64 MB
    _MMAP_THRESHOLD: 2**30,
    _TRIM_THRESHOLD: 2**31 - 1,
}


def keep_freed_memory():
    """Lets this process keep the memory of a step for the next one.

    JAX and torch give it back to Linux after each, which then clears it page
    by page: on a CPU a quarter of a training step of JAX. TensorFlow keeps its
    own. Does nothing where the C library is not glibc.
    """
    if keras.backend.backend() == "tensorflow" or sys.platform != "linux":
        return
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        for option, value in _SETTINGS.items():
            set_option(option, value)
