"""Capsule layers, losses and metrics for Keras 3, on any of its backends."""

from layers.capsule import Capsule, ConvSlimCapsule
from layers.em_routing import em_assignments, em_routing
from layers.losses import (
    CLASSIFICATION_LOSSES,
    MARGIN_SCHEDULES,
    margin_loss,
    reconstruction_loss,
    sigmoid_loss,
    softmax_loss,
    spread_loss,
    spread_margin,
)
from layers.matrix_capsule import (
    ClassMatrixCapsules,
    ConvMatrixCapsules,
    PrimaryMatrixCapsules,
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
    "MARGIN_SCHEDULES",
    "Accuracy",
    "AlmostAccuracy",
    "Capsule",
    "ClassMatrixCapsules",
    "ConvMatrixCapsules",
    "ConvSlimCapsule",
    "PrimaryMatrixCapsules",
    "Reconstruction",
    "almost_correct",
    "correct",
    "dynamic_routing",
    "em_assignments",
    "em_routing",
    "leaky_softmax",
    "lengths",
    "margin_loss",
    "mask_capsules",
    "reconstruction_loss",
    "routing_couplings",
    "sigmoid_loss",
    "softmax_loss",
    "spread_loss",
    "spread_margin",
    "squash",
]
