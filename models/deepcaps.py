"""DeepCaps (Rajasegaran and others 2019), see layers/deepcaps.py."""

import math
from typing import ClassVar

import layers
from common.flags import field
from input_data import keys
from models.classifier import Classifier
from models.hparams import DecoderHParams, arguments_of

# Weight of absent classes, m+ and m- of the margin loss.
MARGINS, HARD_MARGINS = (0.5, 0.9, 0.1), (0.8, 0.95, 0.05)


class DeepCapsModel(Classifier):
    """`layers.networks.deepcaps` and, if `remake` is True, a decoder."""

    @arguments_of(layers.networks.deepcaps)
    class HParams(DecoderHParams):
        """The authors' values, but `decay_steps` for batches of 128."""

        loss_type: ClassVar = "margin"
        decay_rate: float = 0.5
        decay_steps: int = 4690  # 10 epochs of MNIST
        hard_margins: bool = field(
            False,
            "for a second training: margins 0.95, 0.05; "
            "absent classes' weight 0.8",
        )
        remake_weight: float = field(
            0.4, "weight of the mean squared pixel error", at_least=0
        )

    routed_layer, grid = "classes", "cell3"  # cell 4 has a smaller map
    adam_epsilon = 1e-7  # the default of Keras, which the authors use
    schedule_options: ClassVar = {"staircase": True}

    def __init__(self, shape, num_targets, hparams, **kwargs):
        super().__init__(shape, num_targets, hparams, **kwargs)
        self.add_decoder(shape, layers.ConvReconstruction)

    def classification_loss(self, labels, outputs, step):
        """The sum over classes, of which `margin_loss` is half the mean."""
        margins = HARD_MARGINS if self.hparams.hard_margins else MARGINS
        loss = layers.margin_loss(labels, outputs[keys.LOGITS], *margins)
        return 2.0 * labels.shape[-1] * loss

    def reconstruction_loss(self, images, reconstructions):
        """`remake_weight` * mean squared error."""
        loss = super().reconstruction_loss(images, reconstructions)
        return loss / math.prod(images.shape[1:])
