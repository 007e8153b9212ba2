"""J. Su's baseline with pooling, and the base class of his two networks."""

import dataclasses
from typing import ClassVar

import layers
from input_data import keys
from layers import networks
from models.classifier import Classifier
from models.hparams import BaseHParams, arguments_of


@dataclasses.dataclass(frozen=True)
class SuHParams(BaseHParams):
    """Hyper-parameters of both of Su's networks."""

    loss_type: ClassVar = "margin"
    decay_rate: float = 1.0  # no decay


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


@arguments_of(networks.pooling)
class HParams(SuHParams):
    """Hyper-parameters of the network, with Su's defaults."""


class PoolingModel(SuModel):
    """The network with pooling, see `layers.networks.pooling`."""

    HParams = HParams

    @classmethod
    def takes_any_size(cls, hparams):
        return True
