"""Spectra of kernels that are computed once for many batches."""

import contextlib
import contextvars

import keras
from keras import backend, ops

from .toom_cook import kernel_spectrum

_in_use = contextvars.ContextVar("kept spectra in use", default=None)


class KeptSpectra:
    """The spectra of the kernels of a network that predicts, on TensorFlow.

    A step of training changes the kernels: their spectra are computed for
    every batch. Between steps they can be kept:

      spectra = KeptSpectra()

      @tf.function
      def predict(images):
          with spectra.in_use():
              return network(images, training=False)

      predict(images)
      ...                # the weights change
      spectra.update()
      predict(images)

    What is kept takes as much memory as a batch needs for it in any case. No
    gradient reaches the kernels.
    """

    def __init__(self):
        # By (the kernel's id, its type of numbers, plan).
        self._kept = {}

    @contextlib.contextmanager
    def in_use(self):
        """A context in which `convolution` takes the spectra from here."""
        token = _in_use.set(self)
        try:
            yield
        finally:
            _in_use.reset(token)

    def update(self):
        """Computes all anew, of the kernels as they are now."""
        for kernel, seen_as, plan, spectrum in self._kept.values():
            seen = ops.cast(kernel.value, seen_as)
            seen = ops.cast(seen, plan.dtype)
            spectrum.assign(kernel_spectrum(seen, plan))

    def of(self, kernel, plan):
        """The spectrum of a `keras.Variable`, computed when first asked for."""
        import tensorflow as tf

        # A policy of mixed precision shows a float32 variable as bfloat16.
        seen_as = backend.standardize_dtype(kernel.value.dtype)
        key = id(kernel), seen_as, plan
        if key not in self._kept:
            with tf.init_scope():  # outside of the function that is traced
                taps = kernel_spectrum(ops.cast(kernel, plan.dtype), plan)
                spectrum = tf.Variable(taps, trainable=False)
            self._kept[key] = kernel, seen_as, plan, spectrum
        *_, spectrum = self._kept[key]
        return spectrum.value()


def spectrum_of(kernel, plan):
    """The spectrum of a kernel, kept where `KeptSpectra` are in use.

    Args:
      kernel: tensor or variable [k, k, C, O].
      plan: `toom_cook.Plan`.

    Returns:
      Tensor, as `kernel_spectrum` gives it.
    """
    kept = _in_use.get()
    if kept is not None and isinstance(kernel, keras.Variable):
        return kept.of(kernel, plan)
    return kernel_spectrum(ops.cast(kernel, plan.dtype), plan)
