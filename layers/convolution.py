"""Convolution of images by the fastest algorithm for its size.

On CPUs a cost model selects the direct convolution or Toom and Cook's
algorithm (toom_cook.py). GPUs always compute the direct convolution.
"""

import contextlib
import contextvars
import functools
import itertools
import math

import keras
from keras import backend, ops

from .toom_cook import Plan, axes, convolution_by_spectrum, kernel_spectrum
from .utils import (
    cpu_has_bfloat16_products,
    is_jax_on_cpu,
    is_on_cpu,
    positions_of,
    zeros_around,
)

# Costs relative to one multiply-add of a matrix product: a multiply-add of the
# direct convolution, a multiply-add of a transform, and writing and reading
# one number of a spectrum. Those of TensorFlow were fitted on a CPU with
# AVX-512 by benchmarks/convolution_benchmark.py and select the fastest of 40
# square tiles and the direct convolution for 16 sizes. Those of the other
# backends were measured as a whole, not for transforms alone.
_COSTS = {
    "tensorflow": (0.9, 0.35, 30.0),
    "jax": (2.4, 1.0, 100.0),
    "torch": (1.0, 1.0, 100.0),
}
# The batch size for which the plan is chosen where the batch size is unknown.
_USUAL_BATCH = 128


def convolution(images, kernel, strides, padding: str):
    """Convolves images with a kernel; same result as `ops.conv`.

    On CPUs without bfloat16 products, float16 and bfloat16 are computed in
    float32. If the batch size is unknown when TensorFlow traces the graph, the
    graph contains both algorithms and the batch size selects one at run time.

    Args:
      images: tensor [B, H, W, C].
      kernel: tensor or variable [k, k, C, O].
      strides: pair of ints.
      padding: "valid" or "same".

    Returns:
      Tensor [B, h, w, O].
    """
    if not is_on_cpu():
        kernel = ops.cast(kernel, images.dtype)
        return _direct(images, kernel, strides, padding)
    outputs_dtype = dtype = backend.standardize_dtype(images.dtype)
    if dtype == "float16" or (
        dtype == "bfloat16" and not cpu_has_bfloat16_products()
    ):
        dtype = "float32"
    images = ops.cast(images, dtype)
    sizes = tuple(images.shape), tuple(kernel.shape), strides, padding, dtype
    plan = None
    if None not in images.shape[1:]:
        plan = faster_plan(*sizes)

    def by_toom_cook():
        spectrum = _spectrum(kernel, plan)
        return convolution_by_spectrum(images, spectrum, plan)

    def directly():
        taps = ops.cast(kernel, dtype)
        if is_jax_on_cpu() and _has_small_patches(images, taps):
            return _by_patches(images, taps, strides, padding)
        return _direct(images, taps, strides, padding)

    if plan is None:
        outputs = directly()
    elif images.shape[0] is None:
        is_large = ops.shape(images)[0] >= least_batch(*sizes)
        outputs = ops.cond(is_large, by_toom_cook, directly)
    else:
        outputs = by_toom_cook()
    return ops.cast(outputs, outputs_dtype)


@functools.lru_cache(maxsize=256)
def faster_plan(
    images, kernel, strides, padding: str, dtype: str = "float32"
) -> Plan | None:
    """The cheapest `Plan`, or None if the direct convolution is cheaper."""
    by_plan, direct = costs(images, kernel, strides, padding, dtype)
    plan = min(by_plan, key=by_plan.get)
    return plan if by_plan[plan] < direct else None


def least_batch(
    images, kernel, strides, padding: str, dtype: str = "float32"
) -> int:
    """Smallest batch size for which the plan of `faster_plan` is cheaper."""
    plan = faster_plan(images, kernel, strides, padding, dtype)
    _, direct = costs(images, kernel, strides, padding, dtype)
    _, *transform_costs = _COSTS[backend.backend()]
    channels, filters = kernel[2:]
    return next(
        batch
        for batch in itertools.count(1)
        if plan.cost(channels, filters, batch, *transform_costs) < direct
    )


def costs(
    images, kernel, strides, padding: str, dtype: str
) -> tuple[dict[Plan, float], float]:
    """Estimated costs of a convolution for one example, in multiply-adds.

    Args:
      images: tuple (B or None, H, W, C).
      kernel: tuple (k, k, C, O).
      strides: pair of ints.
      padding: "valid" or "same".
      dtype: string, dtype of images and kernel.

    Returns:
      Pair of the costs by `Plan` and the cost of the direct convolution.
    """
    multiply_add, *transform_costs = _COSTS[backend.backend()]
    batch, *size, channels = images
    *kernel_size, _, filters = kernel
    plans = [
        Plan(rows, columns, dtype)
        for rows, columns in itertools.product(
            *map(axes, size, kernel_size, strides, (padding, padding))
        )
    ]
    if not plans:
        raise ValueError(
            f"The kernel {kernel_size} is larger than the images {size}, "
            'which padding="valid" does not allow.'
        )
    if not isinstance(batch, int):  # None, or a symbol in exports of JAX
        batch = _USUAL_BATCH
    positions = plans[0].rows.positions * plans[0].columns.positions
    by_plan = {
        plan: plan.cost(channels, filters, batch, *transform_costs)
        for plan in plans
    }
    return by_plan, multiply_add * positions * math.prod(kernel)


def _direct(images, kernel, strides, padding):
    if tuple(kernel.shape[:2]) == (1, 1):
        # Torch 2.13 on CPUs computes wrong gradients of a 1x1 kernel with
        # strides.
        rows, columns = strides
        images, strides = images[:, ::rows, ::columns], 1
    return ops.conv(
        images,
        kernel,
        strides=strides,
        padding=padding,
        data_format="channels_last",
    )


def _has_small_patches(images, kernel):
    """Whether XLA on CPUs is faster by `_by_patches`.

    It takes a third of the time for the first convolution of the default
    network and its gradient.
    """
    *taps, channels, filters = kernel.shape
    return (
        None not in images.shape[1:] and math.prod(taps) * channels <= filters
    )


def _by_patches(images, kernel, strides, padding):
    """Convolution as one product of all receptive fields with the kernel."""
    *taps, _, filters = kernel.shape
    for number in (1, 0):
        stride = strides[number]
        axis = images.shape[1 + number], taps[number], stride, padding
        span = stride * (positions_of(*axis) - 1) + 1
        pads = [(0, 0)] * 4
        pads[1 + number] = zeros_around(*axis)
        images = ops.pad(images, pads)
        leading = (slice(None),) * (1 + number)
        shifted = [
            images[*leading, slice(tap, tap + span, stride)]
            for tap in range(taps[number])
        ]
        images = ops.concatenate(shifted, axis=-1)
    # [B, h, w, k * k * C] @ [k * k * C, O]
    return ops.matmul(images, ops.reshape(kernel, (-1, filters)))


_spectra_in_use = contextvars.ContextVar("spectra_in_use", default=None)


class KeptSpectra:
    """Cache of the spectra of a network's kernels for inference on TensorFlow.

    Training changes the kernels at every step, so their spectra are computed
    for every batch. For inference they are computed once:

      spectra = KeptSpectra()

      @tf.function
      def predict(images):
          with spectra.in_use():
              return network(images, training=False)

      predict(images)
      ...                # the weights change
      spectra.update()
      predict(images)

    No gradient reaches the kernels.
    """

    def __init__(self):
        self._spectra = {}  # (id of the kernel, its dtype, plan) -> variables

    @contextlib.contextmanager
    def in_use(self):
        """A context in which `convolution` uses these spectra."""
        token = _spectra_in_use.set(self)
        try:
            yield
        finally:
            _spectra_in_use.reset(token)

    def update(self):
        """Computes all spectra from the present values of the kernels."""
        for (_, dtype, plan), (kernel, spectrum) in self._spectra.items():
            taps = ops.cast(ops.cast(kernel.value, dtype), plan.dtype)
            spectrum.assign(kernel_spectrum(taps, plan))

    def get(self, kernel, plan):
        """The spectrum of a `keras.Variable`, computed at the first call."""
        import tensorflow as tf

        # Under mixed precision the value of a float32 variable is bfloat16.
        dtype = backend.standardize_dtype(kernel.value.dtype)
        key = id(kernel), dtype, plan
        if key not in self._spectra:
            with tf.init_scope():  # outside of the function that is traced
                taps = ops.cast(kernel, plan.dtype)
                spectrum = tf.Variable(
                    kernel_spectrum(taps, plan), trainable=False
                )
            self._spectra[key] = kernel, spectrum
        _, spectrum = self._spectra[key]
        return spectrum.value()


def _spectrum(kernel, plan):
    """The spectrum of a kernel, from the `KeptSpectra` in use if there are."""
    spectra = _spectra_in_use.get()
    if spectra is not None and isinstance(kernel, keras.Variable):
        return spectra.get(kernel, plan)
    return kernel_spectrum(ops.cast(kernel, plan.dtype), plan)


@keras.saving.register_keras_serializable(package="capsules")
class Conv2D(keras.layers.Conv2D):
    """`keras.layers.Conv2D`, computed by `convolution`."""

    def convolution_op(self, inputs, kernel):
        if (
            self.data_format == "channels_last"
            and self.groups == 1
            and set(self.dilation_rate) == {1}
        ):
            return convolution(inputs, kernel, self.strides, self.padding)
        return super().convolution_op(inputs, kernel)
