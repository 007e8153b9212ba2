"""Capsule layers, losses and metrics for Keras 3.

They run on TensorFlow, JAX and torch.
"""

from .capsule import Capsule, ConvSlimCapsule, Length
from .convolution import Conv2D
from .deepcaps import ConvCapsules, ConvReconstruction, MapRoutingRule
from .em_routing import EMOptions, em_assignments, em_routing
from .inverted_attention import InvertedAttentionCapsules
from .losses import (
    CLASSIFICATION_LOSSES,
    MARGIN_SCHEDULES,
    almost_correct,
    correct,
    margin_loss,
    reconstruction_loss,
    sigmoid_loss,
    softmax_loss,
    spread_loss,
    spread_margin,
)
from .matrix_capsule import (
    ClassMatrixCapsules,
    ConvMatrixCapsules,
    PrimaryMatrixCapsules,
)
from .network import (
    CapsuleNetwork,
    CapsuleStack,
    Reconstruction,
    mask_capsules,
    pretrained,
)
from .routing import (
    RoutingRule,
    dynamic_routing,
    leaky_softmax,
    lengths,
    route,
    routing_couplings,
    squash,
)
from .self_attention import (
    DepthwiseCapsule,
    SelfAttentionCapsule,
    exponential_squash,
    self_attention,
    self_attention_routing,
)
from .self_routing import SelfRoutingCapsules
from .vb_routing import ClassVBCapsules, ConvVBCapsules, PrimaryVBCapsules
from .votes import FormedVotes

__version__ = "1.0.0"

__all__ = [
    "CLASSIFICATION_LOSSES",
    "MARGIN_SCHEDULES",
    "Capsule",
    "CapsuleNetwork",
    "CapsuleStack",
    "ClassMatrixCapsules",
    "ClassVBCapsules",
    "Conv2D",
    "ConvCapsules",
    "ConvMatrixCapsules",
    "ConvReconstruction",
    "ConvSlimCapsule",
    "ConvVBCapsules",
    "DepthwiseCapsule",
    "EMOptions",
    "FormedVotes",
    "InvertedAttentionCapsules",
    "Length",
    "MapRoutingRule",
    "PrimaryMatrixCapsules",
    "PrimaryVBCapsules",
    "Reconstruction",
    "RoutingRule",
    "SelfAttentionCapsule",
    "SelfRoutingCapsules",
    "almost_correct",
    "correct",
    "dynamic_routing",
    "em_assignments",
    "em_routing",
    "exponential_squash",
    "leaky_softmax",
    "lengths",
    "margin_loss",
    "mask_capsules",
    "pretrained",
    "reconstruction_loss",
    "route",
    "routing_couplings",
    "self_attention",
    "self_attention_routing",
    "sigmoid_loss",
    "softmax_loss",
    "spread_loss",
    "spread_margin",
    "squash",
]
