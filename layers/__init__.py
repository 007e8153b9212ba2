"""Capsule layers, losses and metrics for Keras 3 (TensorFlow, JAX, torch)."""

from . import networks as networks
from .backends import use_full_float32 as use_full_float32
from .capsule import Capsule as Capsule
from .capsule import ConvSlimCapsule as ConvSlimCapsule
from .capsule import Length as Length
from .capsule_network import CapsuleNetwork as CapsuleNetwork
from .em_routing import ClassMatrixCapsules as ClassMatrixCapsules
from .em_routing import ConvMatrixCapsules as ConvMatrixCapsules
from .em_routing import EMOptions as EMOptions
from .em_routing import PrimaryMatrixCapsules as PrimaryMatrixCapsules
from .em_routing import em_assignments as em_assignments
from .em_routing import em_routing as em_routing
from .fast_convolution import Conv2D as Conv2D
from .losses import CLASSIFICATION_LOSSES as CLASSIFICATION_LOSSES
from .losses import almost_correct as almost_correct
from .losses import correct as correct
from .losses import margin_loss as margin_loss
from .losses import reconstruction_loss as reconstruction_loss
from .losses import sigmoid_loss as sigmoid_loss
from .losses import softmax_loss as softmax_loss
from .networks.deepcaps import ConvCapsules as ConvCapsules
from .networks.deepcaps import ConvReconstruction as ConvReconstruction
from .networks.deepcaps import MapRoutingRule as MapRoutingRule
from .networks.efficient_capsule import DepthwiseCapsule as DepthwiseCapsule
from .networks.efficient_capsule import (
    SelfAttentionCapsule as SelfAttentionCapsule,
)
from .networks.efficient_capsule import exponential_squash as exponential_squash
from .networks.efficient_capsule import self_attention as self_attention
from .networks.efficient_capsule import (
    self_attention_routing as self_attention_routing,
)
from .networks.homogeneous_capsule import (
    HomogeneousCapsule as HomogeneousCapsule,
)
from .networks.inverted_attention import (
    InvertedAttentionCapsules as InvertedAttentionCapsules,
)
from .networks.matrix_capsule import MARGIN_SCHEDULES as MARGIN_SCHEDULES
from .networks.matrix_capsule import spread_loss as spread_loss
from .networks.matrix_capsule import spread_margin as spread_margin
from .networks.self_routing import SelfRoutingCapsules as SelfRoutingCapsules
from .networks.vb_capsule import ClassVBCapsules as ClassVBCapsules
from .networks.vb_capsule import ConvVBCapsules as ConvVBCapsules
from .networks.vb_capsule import PrimaryVBCapsules as PrimaryVBCapsules
from .pretrained import pretrained as pretrained
from .reconstruction import Reconstruction as Reconstruction
from .reconstruction import mask_capsules as mask_capsules
from .routing import RoutingRule as RoutingRule
from .routing import dynamic_routing as dynamic_routing
from .routing import leaky_softmax as leaky_softmax
from .routing import lengths as lengths
from .routing import route as route
from .routing import routing_couplings as routing_couplings
from .routing import squash as squash
from .vector_routing import VectorRouting as VectorRouting
from .votes import FormedVotes as FormedVotes

__version__ = "2.0.0"
