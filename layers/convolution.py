"""Convolution of images, with a kernel gradient that is fast on CPUs."""

from keras import backend, ops


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
    kernel = ops.convert_to_tensor(kernel)  # cast to the type of the layer

    def convolve(kernel):
        return ops.conv(
            images,
            kernel,
            strides=strides,
            padding=padding,
            data_format="channels_last",
        )

    if not _computes_by_onednn():
        return convolve(kernel)

    @ops.custom_gradient
    def with_kernel_gradient(outputs, kernel):
        def gradient(upstream):
            return upstream, kernel_gradient(
                images, upstream, kernel.shape[0], strides, padding
            )

        return outputs, gradient

    # The gradient of the images stays that of `ops.conv`.
    return with_kernel_gradient(convolve(ops.stop_gradient(kernel)), kernel)


def _computes_by_onednn():
    """Whether convolutions are those of TensorFlow on CPUs."""
    if backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    return not tf.config.list_logical_devices("GPU")


def kernel_gradient(images, gradient, kernel_size, strides, padding):
    """The gradient of a kernel as a convolution over the positions.

      dW[y, x, c, o] = sum over b, i, j of
                       images[b, s * i + y, s * j + x, c] * gradient[b, i, j, o]

    is a convolution of images [C, H, W, B] with the kernel [h, w, B, O],
    dilated by the strides s. oneDNN computes it about as fast as the forward
    convolution; its own gradient of kernels takes twice that in bfloat16.

    Args:
      images: tensor [B, H, W, C].
      gradient: tensor [B, h, w, O], of the outputs.
      kernel_size: int, k.
      strides: int.
      padding: "valid" or "same".

    Returns:
      Tensor [k, k, C, O].
    """
    # The rows and columns that the convolution has looked at.
    height, width = (
        strides * (positions - 1) + kernel_size
        for positions in gradient.shape[1:3]
    )
    if padding == "same":
        rows = _around(height - images.shape[1])
        columns = _around(width - images.shape[2])
        images = ops.pad(images, [(0, 0), rows, columns, (0, 0)])
    images = images[:, :height, :width]
    gradient_of_kernel = ops.conv(
        ops.transpose(images, (3, 1, 2, 0)),
        ops.transpose(gradient, (1, 2, 0, 3)),
        padding="valid",
        data_format="channels_last",
        dilation_rate=strides,
    )
    return ops.transpose(gradient_of_kernel, (1, 2, 0, 3))


def _around(missing):
    """How much to pad before and after: the odd one after."""
    missing = max(missing, 0)
    return missing // 2, missing - missing // 2
