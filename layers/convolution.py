"""Convolution of images, with the fastest gradient that a backend has."""

from keras import ops

from layers.hardware import is_tensorflow_on_cpu


def convolution(images, kernel, strides, padding):
    """The convolution of images with a kernel, as `ops.conv` computes it.

    Args:
      images: tensor [B, H, W, C].
      kernel: tensor or variable [k, k, C, O].
      strides: int, in both directions.
      padding: "valid" or "same".

    Returns:
      Tensor [B, h, w, O].
    """
    # With a stride of 1 TensorFlow's own gradient is as fast, or faster.
    if strides > 1 and is_tensorflow_on_cpu():
        from layers import tensorflow_convolution

        return tensorflow_convolution.convolution(
            images, ops.convert_to_tensor(kernel), strides, padding
        )
    return ops.conv(
        images,
        kernel,
        strides=strides,
        padding=padding,
        data_format="channels_last",
    )
