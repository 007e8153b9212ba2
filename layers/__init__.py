"""Capsule layers, losses and metrics for Keras 3, on any of its backends."""

from .capsule import Capsule, ConvSlimCapsule, Length
from .losses import (
    CLASSIFICATION_LOSSES,
    margin_loss,
    reconstruction_loss,
    sigmoid_loss,
    softmax_loss,
)
from .metrics import Accuracy, AlmostAccuracy, almost_correct, correct
from .reconstruction import Reconstruction, mask_capsules
from .routing import (
    RoutingRule,
    dynamic_routing,
    leaky_softmax,
    lengths,
    routing_couplings,
    squash,
)

__version__ = "1.0.0"

__all__ = [
    "CLASSIFICATION_LOSSES",
    "Accuracy",
    "AlmostAccuracy",
    "Capsule",
    "ConvSlimCapsule",
    "Length",
    "Reconstruction",
    "RoutingRule",
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
