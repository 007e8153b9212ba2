"""The field's capsule networks, one function each.

    network = layers.networks.self_routing((28, 28, 1), num_classes=10)

is a new `keras.Model` from images [B, 28, 28, 1] with pixels in [0, 1] to
lengths of capsules or probabilities, float32 [B, 10]. For symbolic images
[B, H, W, C] in place of the shape, a function returns a dict of tensors: the
outputs of its layers by name; "logits", what classification losses take; and
"capsules", the class capsules, if there are any. Further calls on tensors give
layers unique names, or `name` as a prefix. Arguments have the defaults of the
networks' authors.
"""

from .baseline import baseline as baseline
from .capsule import capsule as capsule
from .deepcaps import deepcaps as deepcaps
from .efficient_capsule import efficient_capsule as efficient_capsule
from .homogeneous_capsule import homogeneous_capsule as homogeneous_capsule
from .inverted_attention import inverted_attention as inverted_attention
from .matrix_capsule import matrix_capsule as matrix_capsule
from .photo_capsule import photo_capsule as photo_capsule
from .pooling import pooling as pooling
from .self_routing import self_routing as self_routing
from .shared_capsule import shared_capsule as shared_capsule
from .vb_capsule import vb_capsule as vb_capsule
