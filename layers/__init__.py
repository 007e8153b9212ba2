"""Capsule layers, losses and metrics for Keras 3, on any of its backends."""

from layers.capsule import Capsule, ConvSlimCapsule
from layers.losses import (
    CLASSIFICATION_LOSSES,
    margin_loss,
    reconstruction_loss,
    sigmoid_loss,
    softmax_loss,
)
from layers.metrics import (
    Accuracy,
    AlmostAccuracy,
    almost_correct,
    correct,
)
from layers.reconstruction import Reconstruction, mask_capsules
from layers.routing import (
    dynamic_routing,
    leaky_softmax,
    lengths,
    routing_couplings,
    squash,
)

__all__ = [
    "CLASSIFICATION_LOSSES",
    "Accuracy",
    "AlmostAccuracy",
    "Capsule",
    "ConvSlimCapsule",
    "Reconstruction",
    "almost_correct",
    "correct",
    "dynamic_routing",
    "leaky_softmax",
    "lengths",
    "margin_loss",
    "mask_capsules",
    "reconstruction_loss",
    "routing_couplings",
    "sigmoid_loss",
    "softmax_loss",
    "squash",
]
