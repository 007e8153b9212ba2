"""Su's baseline: four convolutions with global average pooling."""

import dataclasses

import keras
from keras import ops

from input_data import features as keys
from models import four_convolutions
from models.four_convolutions import FourConvolutions
from models.hparams import size


@dataclasses.dataclass(frozen=True)
class HParams(four_convolutions.HParams):
    """Hyper-parameters of the network, with Su's defaults."""

    dense_units: int = size(128, "units of the dense layer")


class PoolingModel(FourConvolutions):
    """Four convolutions, the mean over all positions, two dense layers.

    dense `dense_units`, relu; dense `num_classes`, sigmoid: each logit is the
    probability of one class.
    """

    HParams = HParams

    def __init__(self, shape, num_targets, hparams, **kwargs):
        super().__init__(shape, num_targets, hparams, **kwargs)
        self.dense = keras.layers.Dense(
            hparams.dense_units, activation="relu", name="dense"
        )
        self.probabilities = keras.layers.Dense(
            shape.num_classes,
            activation="sigmoid",
            dtype="float32",
            name="probabilities",
        )

    def activations(self, images):
        activations = self.convolve(images)
        pooled = ops.mean(activations["conv4"], axis=(1, 2))
        return {**activations, "dense": self.dense(pooled)}

    def call(self, x):
        hidden = self.activations(x[keys.IMAGES])["dense"]
        return {keys.LOGITS: self.probabilities(hidden)}

    @classmethod
    def takes_any_size(cls, hparams):
        return True
