"""Direct convolutions for GPUs, where XLA is slow, and for JAX on CPUs."""

import math

from keras import backend, ops

from ..base_layers import positions_of, zeros_around
from .toom_cook import axes, kernel_phases


def has_slow_gradients(size, taps, strides, padding):
    """Whether XLA multiplies zeros in the gradients of a convolution.

    It swaps the operands of a gradient if the kernel is not smaller than the
    output, and then fills the strides with zeros: on GPUs 976 GFLOP in place
    of 98 for the primary capsules of 128 images of 28x28.
    """
    if None in size or max(strides) == 1 or backend.backend() == "torch":
        return False
    sizes = zip(size, taps, strides, strict=True)
    positions = math.prod(positions_of(*axis, padding) for axis in sizes)
    return 1 < positions <= math.prod(taps)


def by_phases(images, kernel, strides, padding):
    """Convolution without strides: s x s pixels become one of s * s * C."""
    sizes = zip(images.shape[1:3], kernel.shape[:2], strides, strict=True)
    rows, columns = (axes(*size, padding)[0] for size in sizes)
    images = ops.pad(images, [(0, 0), rows.padding, columns.padding, (0, 0)])
    images = images[:, : rows.padded_size, : columns.padded_size]
    sizes = rows.length, rows.strides, columns.length, columns.strides
    images = ops.reshape(images, (-1, *sizes, images.shape[-1]))
    images = ops.transpose(images, (0, 1, 3, 2, 4, 5))  # [B, n, n, s, s, C]
    channels = math.prod(images.shape[3:])
    images = ops.reshape(images, (-1, rows.length, columns.length, channels))
    kernel = kernel_phases(kernel, rows, columns)
    kernel = ops.reshape(kernel, (rows.taps, columns.taps, *kernel.shape[1:]))
    return ops.conv(images, kernel, 1, "valid", "channels_last")


def by_patches(images, kernel, strides, padding):
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
            images[(*leading, slice(tap, tap + span, stride))]
            for tap in range(taps[number])
        ]
        images = ops.concatenate(shifted, axis=-1)
    # [B, h, w, k * k * C] @ [k * k * C, O]
    return ops.matmul(images, ops.reshape(kernel, (-1, filters)))
