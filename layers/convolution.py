"""Convolution of images, in the way that is fastest for its size."""

import functools
import itertools
import math
import numbers

import keras
from keras import backend, ops

from .kept_spectra import spectrum_of
from .toom_cook import Plan, axes, convolution_by_spectrum
from .utils import (
    cpu_has_bfloat16_products,
    is_jax_on_cpu,
    is_on_cpu,
    positions_of,
    zeros_around,
)

# What decides, as benchmarks/convolution_benchmark.py measures it, counted in
# multiply-adds of a matrix product: one multiply-add of the direct
# convolution and its gradients, one of a transform, and one number of a
# spectrum that is written and read. TensorFlow's are of a processor with
# AVX-512, where for 16 sizes they choose the fastest of 40 square tiles and the
# direct convolution; other backends' transforms were not measured alone.
_COSTS = {
    "tensorflow": (0.9, 0.35, 30.0),
    "jax": (2.4, 1.0, 100.0),
    "torch": (1.0, 1.0, 100.0),
}
# Whose plan is taken for a batch size that is not known when the graph is
# made; the graph then computes small batches directly.
_USUAL_BATCH = 128


def convolution(images, kernel, strides, padding: str):
    """The convolution of images with a kernel, as `ops.conv` computes it.

    On CPUs it is computed by Toom and Cook's algorithm where that is faster,
    and in float32 where the processor has no products of shorter numbers. Of a
    batch that is not known when TensorFlow makes the graph, as in an export,
    its size decides when the graph runs.

    Args:
      images: tensor [B, H, W, C].
      kernel: tensor or variable [k, k, C, O].
      strides: int, in both directions, or a pair.
      padding: "valid" or "same".

    Returns:
      Tensor [B, h, w, O].
    """
    strides = _pair(strides)
    if not is_on_cpu():
        taps = ops.cast(kernel, images.dtype)
        return _direct(images, taps, strides, padding)
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

    def by_spectrum():
        taps = spectrum_of(kernel, plan)
        return convolution_by_spectrum(images, taps, plan)

    def by_taps():
        taps = ops.cast(kernel, dtype)
        if is_jax_on_cpu() and _has_small_patches(images, taps):
            return _by_patches(images, taps, strides, padding)
        return _direct(images, taps, strides, padding)

    if plan is None:
        outputs = by_taps()
    elif images.shape[0] is None:
        is_large = ops.shape(images)[0] >= least_batch(*sizes)
        outputs = ops.cond(is_large, by_spectrum, by_taps)
    else:
        outputs = by_spectrum()
    return ops.cast(outputs, outputs_dtype)


@functools.lru_cache(maxsize=256)
def faster_plan(
    images, kernel, strides, padding: str, dtype: str = "float32"
) -> Plan | None:
    """How to cut a convolution that Toom and Cook's algorithm makes faster.

    Args and raises: as `costs`.

    Returns:
      The cheapest `Plan`, or None if the direct convolution is cheaper.
    """
    by_plan, direct = costs(images, kernel, strides, padding, dtype)
    plan = min(by_plan, key=by_plan.get)
    return plan if by_plan[plan] < direct else None


def least_batch(
    images, kernel, strides, padding: str, dtype: str = "float32"
) -> int:
    """From how many examples on the plan of `faster_plan` pays.

    Args: as `costs`, of a size for which there is such a plan.
    """
    plan = faster_plan(images, kernel, strides, padding, dtype)
    _, direct = costs(images, kernel, strides, padding, dtype)
    _, *of_spectra = _COSTS[backend.backend()]
    channels, filters = kernel[2:]
    return next(
        batch
        for batch in itertools.count(1)
        if plan.cost(channels, filters, batch, *of_spectra) < direct
    )


def costs(
    images, kernel, strides, padding: str, dtype: str
) -> tuple[dict[Plan, float], float]:
    """What a convolution costs, counted in multiply-adds of a product.

    Args:
      images: tuple (B or None, H, W, C).
      kernel: tuple (k, k, C, O).
      strides: pair of ints.
      padding: "valid" or "same".
      dtype: string, the type of the numbers.

    Returns:
      What an example costs by each `Plan`, and what it costs directly.

    Raises:
      ValueError: for a kernel that is larger than the images.
    """
    multiply_add, *of_spectra = _COSTS[backend.backend()]
    batch, *size, channels = images
    *kernel_size, _, filters = kernel
    plans = [
        Plan(rows, columns, dtype)
        for rows, columns in itertools.product(
            *map(axes, size, kernel_size, strides, (padding, padding))
        )
    ]
    if not isinstance(batch, int):  # None; JAX has a symbol for it in exports
        batch = _USUAL_BATCH
    if not plans:
        raise ValueError(
            f"images of {size} pixels are smaller than the kernel of "
            f"{kernel_size}, which padding='valid' does not allow"
        )
    positions = plans[0].rows.positions * plans[0].columns.positions
    return (
        {p: p.cost(channels, filters, batch, *of_spectra) for p in plans},
        multiply_add * positions * math.prod(kernel),
    )


def _pair(strides):
    is_one = isinstance(strides, numbers.Integral)
    return (int(strides),) * 2 if is_one else tuple(strides)


def _direct(images, kernel, strides, padding):
    if tuple(kernel.shape[:2]) == (1, 1):
        # Only these pixels count. Torch 2.13 on CPUs gives wrong gradients of
        # such a kernel if it leaves out the others itself.
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
    """Whether a position sees no more numbers than it gives.

    XLA on CPUs takes three times as long for the first convolution of the
    default network, with the gradient of its kernel, as by its patches.
    """
    *taps, channels, filters = kernel.shape
    return (
        None not in images.shape[1:] and math.prod(taps) * channels <= filters
    )


def _by_patches(images, kernel, strides, padding):
    """The convolution as one product, of all that each position sees."""
    *taps, _, filters = kernel.shape
    for number in (1, 0):
        step = strides[number]
        axis = images.shape[1 + number], taps[number], step, padding
        span = step * (positions_of(*axis) - 1) + 1
        zeros = [(0, 0)] * 4
        zeros[1 + number] = zeros_around(*axis)
        images = ops.pad(images, zeros)
        shifted = (slice(y, y + span, step) for y in range(taps[number]))
        before = (slice(None),) * (1 + number)
        images = ops.concatenate([images[*before, s] for s in shifted], axis=-1)
    return ops.matmul(images, ops.reshape(kernel, (-1, filters)))


@keras.saving.register_keras_serializable(package="capsules")
class Conv2D(keras.layers.Conv2D):
    """`keras.layers.Conv2D`, of the same weights, by `convolution`."""

    def convolution_op(self, inputs, kernel):
        if (
            self.data_format == "channels_last"
            and self.groups == 1
            and set(self.dilation_rate) == {1}
        ):
            return convolution(inputs, kernel, self.strides, self.padding)
        return super().convolution_op(inputs, kernel)
