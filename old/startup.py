"""Loads Keras and its backend quietly, once the flags are parsed."""

import contextlib
import os
import re
import signal
import sys

from old.errors import UserError

_BACKENDS = ("jax", "tensorflow", "torch")
# What TensorFlow says of processors and missing GPUs when it starts, of which
# no setting of its own silences all.
_HARMLESS = re.compile(
    r"^(WARNING: All log messages before absl::InitializeLog"
    r"|To enable the following instructions"
    r"|[IWE]\d{4} .*(cudart_stub|cuda_platform|cpu_feature_guard|port\.cc"
    r"|cuda_dnn|cuda_fft|cuda_blas|computation_placer|Skipping registering))"
)


def load_backend():
    """Imports Keras, before anything that imports TensorFlow.

    Raises:
      UserError: if the backend that KERAS_BACKEND, or Keras' own file of
        settings, names is not installed, or is not one of ours.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    # On processors without AVX-512 TensorFlow would leave oneDNN out, whose
    # products make a training step twice as fast there.
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    asked = os.environ.get("KERAS_BACKEND")
    source = f"KERAS_BACKEND={asked}" if asked else "the backend of keras.json"
    told = f"{source} cannot be used: it must be one of {', '.join(_BACKENDS)}"
    with _without_harmless_lines():
        try:
            import keras
        except (ImportError, ValueError) as error:
            # Others than ours may need what is not installed, too.
            raise UserError(f"{told}, and installed ({error})") from None
        backend = keras.backend.backend()
        if backend not in _BACKENDS:
            raise UserError(f"{told}, not {backend}")
        import tensorflow as tf  # reads the data under every backend

        if backend == "tensorflow":
            tf.config.list_physical_devices("GPU")  # it speaks of that, too


@contextlib.contextmanager
def _without_harmless_lines():
    """Leaves lines out of what this process writes as errors, down to C++.

    Another process passes on all other lines as they come, so that none is
    lost, however this one ends.
    """
    has_gpu = os.path.exists("/dev/nvidiactl")
    if has_gpu or "tensorflow" in sys.modules or not hasattr(os, "fork"):
        yield
        return
    sys.stderr.flush()
    sys.stdout.flush()
    reader, writer = os.pipe()
    # Ctrl-C goes to both processes: the other one leaves it to this one, and
    # passes on what this one says then.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    child = os.fork()
    if child == 0:
        try:
            os.close(writer)
            with open(reader, "rb", buffering=0) as lines:
                for line in lines:
                    if not _HARMLESS.match(line.decode(errors="replace")):
                        os.write(2, line)
        finally:  # not as a second copy of this program
            os._exit(0)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    os.close(reader)
    before = os.dup(2)
    os.dup2(writer, 2)
    os.close(writer)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)
        os.waitpid(child, 0)
