"""Convolution of images by the fastest algorithm for the given shapes.

On CPUs a cost model selects the direct convolution or Toom and Cook's algorithm
(toom_cook.py). GPUs use the direct convolution; if strides would make XLA's
gradients slow, the images are first split into phases (other_backends.py).
"""

import contextlib
import contextvars
import functools
import itertools
import math
from typing import Any

import keras
from keras import backend, ops

from ..backends import cpu_has_bfloat16_products, is_exporting, is_on_cpu
from ..base_layers import Layer, Shape, Tensor, registered
from .other_backends import by_patches, by_phases, has_slow_gradients
from .toom_cook import Plan, axes, convolution_by_spectrum, kernel_spectrum

# Costs relative to one multiply-add of a matrix product: a multiply-add of the
# direct convolution, a multiply-add of a transform, and writing and reading
# one number of a spectrum. Measured on two AVX-512 cores in November 2026.
_COSTS = {
    "tensorflow": (0.9, 0.35, 30.0),
    "jax": (2.4, 1.0, 100.0),
    "torch": (1.0, 1.0, 100.0),
}


def convolution(images, kernel, strides, padding: str):
    """Convolves images with a kernel; same result as `ops.conv`.

    CPUs compute float16, and most also bfloat16, in float32. For an unknown
    batch size, a graph of TensorFlow selects the algorithm at run time.

    Images are [B, H, W, C], the kernel is [k, k, C, O], strides are a pair, and
    padding is "valid" or "same". Returns [B, h, w, O].
    """
    if not is_on_cpu():
        axes_sizes = images.shape[1:3], kernel.shape[:2], strides, padding
        compute = by_phases if has_slow_gradients(*axes_sizes) else _direct
        kernel = ops.cast(kernel, images.dtype)
        return compute(images, kernel, strides, padding)
    outputs_dtype = dtype = backend.standardize_dtype(images.dtype)
    is_fast = dtype == "bfloat16" and cpu_has_bfloat16_products()
    if dtype in ("float16", "bfloat16") and not is_fast:
        dtype = "float32"
    images = ops.cast(images, dtype)
    sizes = tuple(images.shape), tuple(kernel.shape), strides, padding, dtype
    is_size_known = None not in images.shape[1:]
    plan = faster_plan(*sizes) if is_size_known else None

    def by_toom_cook():
        return convolution_by_spectrum(images, _spectrum(kernel, plan), plan)

    def directly():
        taps = ops.cast(kernel, dtype)
        has_small_patches = math.prod(taps.shape[:-1]) <= taps.shape[-1]
        # On CPUs XLA's convolution takes up to three times as long; oneDNN
        # returns an empty batch unchanged.
        prefers_patches = is_on_cpu("jax") and has_small_patches
        if is_size_known and (prefers_patches or images.shape[0] == 0):
            return by_patches(images, taps, strides, padding)
        return _direct(images, taps, strides, padding)

    if plan is None or is_exporting():
        outputs = directly()
    elif images.shape[0] is None:
        is_large = ops.shape(images)[0] >= least_batch(*sizes)
        outputs = ops.cond(is_large, by_toom_cook, directly)
    else:
        outputs = by_toom_cook()
    return ops.cast(outputs, outputs_dtype)


@functools.lru_cache(maxsize=256)
def faster_plan(images, kernel, strides, padding, dtype="float32"):
    """The cheapest `Plan` of `costs`; None if direct convolution is cheaper."""
    by_plan, direct = costs(images, kernel, strides, padding, dtype)
    plan = min(by_plan, key=by_plan.__getitem__)
    return plan if by_plan[plan] < direct else None


def least_batch(images: Shape, *sizes: Any) -> int:
    """Batch size from which `faster_plan(images, *sizes)` beats `_direct`."""
    plan = faster_plan(images, *sizes)

    def is_cheaper(batch):
        by_plan, direct = costs((batch, *images[1:]), *sizes)
        return by_plan[plan] < direct

    return next(filter(is_cheaper, itertools.count(1)))


def costs(images, kernel, strides, padding, dtype="float32"):
    """Estimated costs of a convolution for one example, in multiply-adds.

    `images` (B or None, H, W, C) and `kernel` (k, k, C, O) are shapes. Returns
    a dict {Toom-Cook `Plan`: cost} and the cost of the direct convolution.
    """
    multiply_add, transform_cost, memory_cost = _COSTS[backend.backend()]
    batch, *size, channels = images
    *kernel_size, _, filters = kernel
    # A usual size for None, a symbol in exports of JAX, or an empty batch.
    if not isinstance(batch, int) or batch == 0:
        batch = 128

    def transform(numbers, size):
        return numbers * (transform_cost * size + memory_cost)

    by_plan = {}
    both_axes = map(axes, size, kernel_size, strides, (padding, padding))
    for rows, columns in itertools.product(*both_axes):
        plan = Plan(rows, columns, dtype)
        inputs = plan.phases * channels
        by_plan[plan] = plan.products * (
            plan.tiles * inputs * filters
            + transform(plan.tiles * inputs, rows.length * columns.length)
            # The kernel is transformed once per batch.
            + transform(inputs * filters / batch, rows.taps * columns.taps)
            + transform(plan.tiles * filters, rows.tile * columns.tile)
        )
    positions = rows.positions * columns.positions
    return by_plan, multiply_add * positions * math.prod(kernel)


def _direct(images, kernel, strides, padding):
    if tuple(kernel.shape[:2]) == (1, 1):
        # On CPUs Torch 2.13's gradients of 1x1 kernels with strides are wrong.
        rows, columns = strides
        images, strides = images[:, ::rows, ::columns], 1
    return ops.conv(images, kernel, strides, padding, "channels_last")


_spectra_in_use = contextvars.ContextVar("spectra_in_use", default=None)


class KeptSpectra:
    """Spectra (see toom_cook.py) of kernels, computed once for inference.

    Convolutions that TensorFlow traces in a `with` block of `in_use()` read the
    spectra from variables, so they give kernels no gradients. After a change of
    the kernels call `update`.
    """

    def __init__(self):
        self._spectra = {}  # (id of the kernel, its dtype, plan) -> variables

    @contextlib.contextmanager
    def in_use(self):
        token = _spectra_in_use.set(self)
        try:
            yield
        finally:
            _spectra_in_use.reset(token)

    def update(self) -> None:
        for (_, dtype, plan), (kernel, spectrum) in self._spectra.items():
            taps = ops.cast(ops.cast(kernel.value, dtype), plan.dtype)
            spectrum.assign(kernel_spectrum(taps, plan))

    def get(self, kernel: Any, plan: Plan) -> Tensor:
        """The spectrum of a `keras.Variable`, computed at the first call."""
        import tensorflow as tf

        # Under mixed precision the value of a float32 variable is bfloat16.
        dtype = backend.standardize_dtype(kernel.value.dtype)
        key = id(kernel), dtype, plan
        if key not in self._spectra:
            with tf.init_scope():  # outside of the function that is traced
                taps = ops.cast(kernel, plan.dtype)
                spectrum = tf.Variable(kernel_spectrum(taps, plan))
            self._spectra[key] = kernel, spectrum
        return self._spectra[key][1].value()


def _spectrum(kernel, plan):
    """The spectrum of a kernel, from the `KeptSpectra` if any are in use."""
    spectra = _spectra_in_use.get()
    if spectra is not None and isinstance(kernel, keras.Variable):
        return spectra.get(kernel, plan)
    return kernel_spectrum(ops.cast(kernel, plan.dtype), plan)


@registered
class Conv2D(Layer, keras.layers.Conv2D):
    """`keras.layers.Conv2D`, computed by `convolution`."""

    def convolution_op(self, inputs: Tensor, kernel: Tensor) -> Tensor:
        inputs = ops.cast(inputs, self.compute_dtype)
        is_plain = self.groups == 1 and set(self.dilation_rate) == {1}
        if is_plain and self.data_format == "channels_last":
            return convolution(inputs, kernel, self.strides, self.padding)
        return super().convolution_op(inputs, kernel)
