"""The convolutional baseline that the reference compares with."""

import keras

from input_data import features as keys
from layers.initial_weights import like_the_reference
from models.classifier import Classifier

CONV_CHANNELS = (512, 256)
KERNEL_SIZE = 5
CONV_STDDEV = 0.05
POOL_SIZE = 2
DENSE_UNITS = 1024


class BaselineModel(Classifier):
    """Two convolutions with max pooling, then two dense layers.

    conv 5x5 to 512 and conv 5x5 to 256 channels, each relu and 2x2 max pool
    with stride 2; dense 1024 relu; dense `num_classes`, linear.

    Call arguments:
      x: dict with `images` [B, H, W, C].

    Returns (from a call) a dict:
      logits: float32 [B, classes].

    Args:
      shape: `features.ImageShape`, the images and number of classes.
      num_targets: int; logits are the same for any number of targets.
      hparams: `HParams`; `padding` is that of the convolutions.
      **kwargs: of `keras.Model`.
    """

    # As in `CapsuleModel`.
    network_hparams = ("padding",)

    def __init__(self, shape, num_targets, hparams, **kwargs):
        super().__init__(num_targets, hparams, **kwargs)
        self.convolutions = [
            keras.layers.Conv2D(
                channels,
                KERNEL_SIZE,
                padding=hparams.padding.lower(),
                activation="relu",
                data_format="channels_last",
                name=f"conv{number}",
                **like_the_reference(stddev=CONV_STDDEV),
            )
            for number, channels in enumerate(CONV_CHANNELS, start=1)
        ]
        self.pool = keras.layers.MaxPooling2D(
            POOL_SIZE,
            strides=POOL_SIZE,
            padding="same",
            data_format="channels_last",
        )
        self.flatten = keras.layers.Flatten(data_format="channels_last")
        self.fc1 = keras.layers.Dense(
            DENSE_UNITS,
            activation="relu",
            name="fc1",
            **like_the_reference(),
        )
        self.softmax_layer = keras.layers.Dense(
            shape.num_classes,
            dtype="float32",
            name="softmax_layer",
            **like_the_reference(),
        )

    def activations(self, images):
        """What each layer gives before pooling, by its name."""
        activations = {}
        hidden = images
        for convolution in self.convolutions:
            activations[convolution.name] = convolution(hidden)
            hidden = self.pool(activations[convolution.name])
        activations["fc1"] = self.fc1(self.flatten(hidden))
        return activations

    def call(self, x):
        hidden = self.activations(x[keys.IMAGES])["fc1"]
        return {keys.LOGITS: self.softmax_layer(hidden)}

    @classmethod
    def smallest_image(cls, hparams):
        """Height and width below which the convolutions leave nothing."""
        if hparams.padding == "SAME":
            return 1
        size = 1
        for _ in CONV_CHANNELS:
            # A pool that rounds up makes `size` from one pixel more than
            # twice the size before.
            size = (size - 1) * POOL_SIZE + 1 + KERNEL_SIZE - 1
        return size
