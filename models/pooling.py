"""J. Su's baseline with pooling, and the base class of his two networks."""

from typing import ClassVar

import layers
from input_data import keys
from models.classifier import Classifier
from models.hparams import BaseHParams, arguments_of


class SuModel(Classifier):
    """Base class of Su's two networks, with his loss.

    It is the mean over the classes of

      y * max(0, 0.9 - p)^2 + 0.25 * (1 - y) * max(0, p - 0.1)^2

    where y is the label and p the logit of a class: a capsule length or, in
    `PoolingModel`, a probability. The paper has 0.5 in place of 0.25.
    """

    adam_epsilon = 1e-7  # the default of Keras, which Su uses

    def classification_loss(self, labels, outputs, step):
        logits = outputs[keys.LOGITS]
        return 2.0 * layers.margin_loss(labels, logits, absent_weight=0.25)


class PoolingModel(SuModel):
    """The network with pooling, see `layers.networks.pooling`."""

    @arguments_of(layers.networks.pooling)
    class HParams(BaseHParams):
        loss_type: ClassVar = "margin"
        decay_rate: float = 1.0  # no decay

    @classmethod
    def takes_any_size(cls, hparams):
        return True
