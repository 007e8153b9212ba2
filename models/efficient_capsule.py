"""Efficient-CapsNet (Mazzia and others 2021), see layers/self_attention.py."""

import math
from typing import ClassVar

import layers
from input_data import keys
from models import graph
from models.classifier import Classifier
from models.hparams import DecoderHParams, arguments_of


class EfficientCapsuleModel(Classifier):
    """`layers.networks.efficient_capsule` and, if `remake`, a decoder."""

    @arguments_of(layers.networks.efficient_capsule)
    class HParams(DecoderHParams):
        loss_type: ClassVar = "margin"
        decay_rate: float = 0.97
        decay_steps: int = 3750  # an epoch of 60,000 images in batches of 16
        learning_rate: float = 5e-4

    adam_epsilon = 1e-7  # the default of Keras, which the authors use
    schedule_options: ClassVar = {"smallest": 5e-5, "staircase": True}

    def __init__(self, shape, num_targets, hparams, **kwargs):
        super().__init__(shape, num_targets, hparams, **kwargs)
        self.add_decoder(shape, he_normal=True)

    def routing_of(self, images):
        """Attention as couplings [1, B, 1, 1, primary capsules, classes]."""
        primary = self.activations(images)["primary_capsule"]
        attention = self.class_capsule.attention(primary)
        return graph.Routing(attention[None, :, None, None])

    def classification_loss(self, labels, outputs, step):
        """2 * classes * `margin_loss`: equation 4 of Sabour et al. 2017."""
        loss = layers.margin_loss(labels, outputs[keys.LOGITS])
        return 2.0 * labels.shape[-1] * loss

    def reconstruction_loss(self, images, reconstructions):
        """784 * `remake_weight` (0.0005 by default) * mean squared error."""
        scale = 28 * 28 / math.prod(images.shape[1:])
        return scale * super().reconstruction_loss(images, reconstructions)
