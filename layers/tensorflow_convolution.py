"""TensorFlow's convolution on CPUs, with a faster gradient of the kernel."""

import tensorflow as tf

# What operations of the gradient are called, for profiles.
GRADIENT_SCOPE = "kernel_gradient"


def convolution(images, kernel, strides, padding):
    """`tf.nn.conv2d`, but for how the gradient of the kernel is computed.

    Args:
      images: tensor [B, H, W, C].
      kernel: tensor [k, k, C, O].
      strides: int, in both directions.
      padding: "valid" or "same".

    Returns:
      Tensor [B, h, w, O].
    """
    padding = padding.upper()

    @tf.custom_gradient
    def convolve(images, kernel):
        outputs = tf.nn.conv2d(images, kernel, strides, padding)

        def gradient(upstream):
            # Keras' fixed sizes, where the gradient may have lost them.
            upstream = tf.ensure_shape(upstream, outputs.shape)
            of_images = tf.raw_ops.Conv2DBackpropInput(
                input_sizes=tf.shape(images),
                filter=kernel,
                out_backprop=upstream,
                strides=[1, strides, strides, 1],
                padding=padding,
            )
            of_kernel = kernel_gradient(
                images, upstream, kernel.shape[0], strides, padding
            )
            return of_images, of_kernel

        return outputs, gradient

    # A variable would be no argument of it.
    return convolve(images, tf.convert_to_tensor(kernel))


def kernel_gradient(images, gradient, kernel_size, strides, padding):
    """The gradient of a kernel as a convolution over the positions.

      dW[y, x, c, o] = sum over b, i, j of
                       images[b, s * i + y, s * j + x, c] * gradient[b, i, j, o]

    is a convolution of images [C, H, W, B] with the kernel [h, w, B, O],
    dilated by the strides s. With oneDNN and the paper's sizes it takes about
    as long as the convolution of the images itself, where
    `Conv2DBackpropFilter` takes up to twice as long.

    Args:
      images: tensor [B, H, W, C].
      gradient: tensor [B, h, w, O], of the outputs.
      kernel_size: int, k.
      strides: int, s.
      padding: "VALID" or "SAME".

    Returns:
      Tensor [k, k, C, O].
    """
    with tf.name_scope(GRADIENT_SCOPE):
        # The rows and columns that the convolution has looked at.
        height, width = (
            strides * (positions - 1) + kernel_size
            for positions in gradient.shape[1:3]
        )
        if padding == "SAME":
            rows = _around(height - images.shape[1])
            columns = _around(width - images.shape[2])
            images = tf.pad(images, [(0, 0), rows, columns, (0, 0)])
        transposed = tf.nn.conv2d(
            tf.transpose(images[:, :height, :width], (3, 1, 2, 0)),
            tf.transpose(gradient, (1, 2, 0, 3)),
            strides=1,
            padding="VALID",
            dilations=strides,
        )
        return tf.transpose(transposed, (1, 2, 0, 3))


def _around(missing):
    """How much to pad before and after: the odd one after."""
    missing = max(missing, 0)
    return missing // 2, missing - missing // 2
