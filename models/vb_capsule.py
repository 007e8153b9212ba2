"""The network with variational Bayes routing, see layers/vb_routing.py."""

import dataclasses

import layers
from models.classifier import convolution_block
from models.hparams import MatrixHParams, loss_type, padding, weight_decay
from models.matrix_capsule import CONV_SIZE, CONV_STRIDES, MatrixCapsuleModel


@dataclasses.dataclass(frozen=True)
class HParams(MatrixHParams):
    """Hyper-parameters with the values of the authors of the routing."""

    decay_rate: float = 1.0
    loss_type: str = loss_type("softmax")
    padding: str = padding(
        "padding of the convolution; authors: VALID for 32x32 images", "SAME"
    )
    weight_decay: float = weight_decay(0.0)


class VBCapsuleModel(MatrixCapsuleModel):
    """`MatrixCapsuleModel` with variational Bayes routing.

    Batch normalization follows the convolution and every layer of capsules,
    separately for each type. There are no biases. In the authors' code the
    coordinates are 0.1 everywhere, and further weights (betas) have no effect.
    """

    HParams = HParams
    layer_classes = (
        layers.PrimaryVBCapsules,
        layers.ConvVBCapsules,
        layers.ClassVBCapsules,
    )

    def convolution(self, hparams):
        sizes = hparams.conv_channels, CONV_SIZE, CONV_STRIDES
        return convolution_block(*sizes, "conv1", hparams.padding)

    def layer_options(self, hparams):
        options = {"num_routing": hparams.routing}
        return options, options
