"""The networks that are compared: convolutions alone, naive, ours, others."""

import dataclasses
import functools

import keras
import numpy as np
from keras import ops

from benchmarks.naive import naive_model
from input_data import features as keys
from layers.network import CONV_STDDEV, KERNEL_SIZE, PRIMARY_STRIDES
from layers.utils import reference_initializers
from models.capsule import CapsuleModel, HParams
from models.optimizer import compile_model
from models.registry import build_model, model_class

MNIST = keys.ImageShape(28, 28, 1, 10)


@dataclasses.dataclass(frozen=True)
class Setting:
    """What is computed: images [batch_size, *shape] through `hparams`."""

    shape: keys.ImageShape = MNIST
    hparams: HParams = dataclasses.field(default_factory=HParams)
    batch_size: int = 128


class _MeanOfOutputs(keras.Model):
    """Its loss is the mean of its outputs."""

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        return ops.mean(y_pred)


class LayerAlone(_MeanOfOutputs):
    """A factor of the inputs, a layer, and the mean square as the loss.

    The factor makes the gradient of the inputs part of a step.
    """

    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        self.factor = self.add_weight(shape=(), initializer="ones")
        self.compile(optimizer=keras.optimizers.SGD(1e-6))

    def call(self, inputs):
        outputs = ops.cast(self.layer(inputs * self.factor), "float32")
        axes = tuple(range(1, len(outputs.shape)))
        return ops.mean(ops.square(outputs), axis=axes)


class ConvolutionsAlone(_MeanOfOutputs):
    """The capsule network's two convolutions, and next to nothing else.

    Its output and its loss are the mean square of the second convolution;
    they are trained by plain gradient descent, which reads and writes each
    weight once.
    """

    xla = "auto"

    def __init__(self, hparams):
        super().__init__()
        options = {
            "padding": hparams.padding.lower(),
            "data_format": "channels_last",
        }
        self.conv1 = keras.layers.Conv2D(
            hparams.conv_channels,
            KERNEL_SIZE,
            activation="relu",
            **options,
            **reference_initializers(CONV_STDDEV),
        )
        self.conv2 = keras.layers.Conv2D(
            hparams.num_prime_capsules * hparams.primary_atoms,
            KERNEL_SIZE,
            strides=PRIMARY_STRIDES,
            **options,
            **reference_initializers(),
        )
        self.compile(optimizer=keras.optimizers.SGD(1e-6))

    def call(self, x):
        features = self.conv2(self.conv1(x[keys.IMAGES]))
        features = ops.cast(features, "float32")
        return ops.mean(ops.square(features), axis=(1, 2, 3))

    def scored(self, x, y, outputs):
        return [outputs]


def _compiled_capsules(make_model, setting):
    model = make_model(setting.shape, 1, setting.hparams)
    model.create_weights(setting.shape)
    compile_model(model)
    return model


def _compiled_other(name, setting):
    """Another model as it trains, with its own default hyper-parameters."""
    hparams = model_class(name).HParams()
    model = build_model(name, setting.shape, 1, hparams)
    compile_model(model)
    return model


NETWORKS = {
    "convolutions": lambda setting: ConvolutionsAlone(setting.hparams),
    "naive": lambda setting: _compiled_capsules(naive_model, setting),
    "ours": lambda setting: _compiled_capsules(CapsuleModel, setting),
    **{
        name: functools.partial(_compiled_other, name)
        for name in ("shared_capsule", "pooling")
    },
}


def examples(setting, steps):
    """(x, y) of `steps` equal batches of random images."""
    generator = np.random.default_rng(0)
    shape, size = setting.shape, setting.batch_size
    labels = np.arange(size) % shape.num_classes
    images = generator.uniform(
        size=(size, shape.height, shape.width, shape.depth)
    )
    images = np.tile(images.astype("float32"), (steps, 1, 1, 1))
    labels = np.tile(labels.astype("int32"), steps)
    one_hot = np.eye(shape.num_classes, dtype="float32")[labels]
    return (
        {keys.IMAGES: images, keys.RECONS_LABEL: labels},
        {keys.LOGITS: one_hot, keys.RECONS: images},
    )
