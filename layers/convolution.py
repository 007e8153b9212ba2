"""Convolution of images, with the fastest gradient that a backend has."""

from keras import backend, ops

from .hardware import cpu_has_bfloat16_products, is_tensorflow_on_cpu


def convolution(images, kernel, strides: int, padding: str):
    """The convolution of images with a kernel, as `ops.conv` computes it.

    Args:
      images: tensor [B, H, W, C].
      kernel: tensor or variable [k, k, C, O].
      strides: int, in both directions.
      padding: "valid" or "same".

    Returns:
      Tensor [B, h, w, O].
    """
    if not is_tensorflow_on_cpu():
        return _direct(images, kernel, strides, padding)
    dtype = backend.standardize_dtype(images.dtype)
    if dtype == "bfloat16" and not cpu_has_bfloat16_products():
        # TensorFlow would add the gradients of the taps in bfloat16, rounding
        # each time, and take ten times as long.
        images, kernel = (ops.cast(x, "float32") for x in (images, kernel))
    # With a stride of 1 TensorFlow's own gradient is as fast, or faster.
    if strides == 1:
        outputs = _direct(images, kernel, strides, padding)
    else:
        from . import tensorflow_convolution

        outputs = tensorflow_convolution.convolution(
            images, ops.convert_to_tensor(kernel), strides, padding
        )
    return ops.cast(outputs, dtype)


def _direct(images, kernel, strides, padding):
    return ops.conv(
        images,
        kernel,
        strides=strides,
        padding=padding,
        data_format="channels_last",
    )
