"""Capsule layers, losses and metrics for Keras 3 (TensorFlow, JAX, torch)."""

from . import networks as networks
from .capsule import Capsule as Capsule
from .capsule import ConvSlimCapsule as ConvSlimCapsule
from .capsule import Length as Length
from .convolution import Conv2D as Conv2D
from .deepcaps import ConvCapsules as ConvCapsules
from .deepcaps import ConvReconstruction as ConvReconstruction
from .deepcaps import MapRoutingRule as MapRoutingRule
from .em_routing import ClassMatrixCapsules as ClassMatrixCapsules
from .em_routing import ConvMatrixCapsules as ConvMatrixCapsules
from .em_routing import EMOptions as EMOptions
from .em_routing import PrimaryMatrixCapsules as PrimaryMatrixCapsules
from .em_routing import em_assignments as em_assignments
from .em_routing import em_routing as em_routing
from .homogeneous import HomogeneousCapsule as HomogeneousCapsule
from .inverted_attention import (
    InvertedAttentionCapsules as InvertedAttentionCapsules,
)
from .losses import CLASSIFICATION_LOSSES as CLASSIFICATION_LOSSES
from .losses import MARGIN_SCHEDULES as MARGIN_SCHEDULES
from .losses import almost_correct as almost_correct
from .losses import correct as correct
from .losses import margin_loss as margin_loss
from .losses import reconstruction_loss as reconstruction_loss
from .losses import sigmoid_loss as sigmoid_loss
from .losses import softmax_loss as softmax_loss
from .losses import spread_loss as spread_loss
from .losses import spread_margin as spread_margin
from .network import CapsuleNetwork as CapsuleNetwork
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
from .self_attention import DepthwiseCapsule as DepthwiseCapsule
from .self_attention import SelfAttentionCapsule as SelfAttentionCapsule
from .self_attention import exponential_squash as exponential_squash
from .self_attention import self_attention as self_attention
from .self_attention import self_attention_routing as self_attention_routing
from .self_routing import SelfRoutingCapsules as SelfRoutingCapsules
from .vb_routing import ClassVBCapsules as ClassVBCapsules
from .vb_routing import ConvVBCapsules as ConvVBCapsules
from .vb_routing import PrimaryVBCapsules as PrimaryVBCapsules
from .vector_routing import VectorRouting as VectorRouting
from .votes import FormedVotes as FormedVotes

__version__ = "1.0.0"
