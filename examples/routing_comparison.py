"""Eight models that differ in their routing, to be trained by compare.py.

All models have the same convolutions and primary capsules: 8 types of capsules
with 16 atoms, at each of 7x7 positions of an image of 28x28 pixels. One routed
layer turns them into class capsules; there is no decoder and no weight decay.
The loss, and the activation or normalization of primary capsules, follow each
model's authors, with three exceptions. In `SharedWeights`, absent classes have
the loss weight 0.5 of Sabour's paper. `EMRouting` normalizes primary capsules;
its authors do not. `SelfRouting` normalizes all atoms of a type together.
"""

from functools import partial

import keras
from keras import initializers, ops

import layers
from models.losses import cross_entropy
from models.table import Model

TYPES, ATOMS = 8, 16
convolution = partial(keras.layers.Conv2D, strides=2, padding="same")
normalization = partial(keras.layers.BatchNormalization, momentum=0.9)


def compared(route, loss, **options):
    """A model; `route` gets poses [B, h, w, types, atoms] and features."""

    def network(images, num_classes):
        hidden = ops.relu(normalization()(convolution(64, 5)(images)))
        poses = convolution(TYPES * ATOMS, 5)(hidden)
        poses = keras.layers.Reshape((*poses.shape[1:3], TYPES, ATOMS))(poses)
        return route(poses, hidden, num_classes)

    return Model(network, loss, **options)


def margin(labels, scores, step, hparams):
    return layers.margin_loss(labels, scores)


def softmax(labels, scores, step, hparams):
    return layers.softmax_loss(labels, scores)


def spread(labels, scores, step, hparams):
    growing = layers.spread_margin(step, margin_steps=1000)
    return layers.spread_loss(labels, scores, growing)


def vector_capsules(classes):
    """A route to `classes(capsules [B, I, atoms], num_classes)`."""

    def route(poses, hidden, num_classes):
        primary = keras.layers.Reshape((-1, ATOMS))(poses)
        capsules = classes(primary, num_classes)
        return {"logits": layers.lengths(capsules), "capsules": capsules}

    return route


def dynamic_routing(primary, num_classes):
    return layers.Capsule(num_classes, ATOMS)(layers.squash(primary))


def shared_weights(primary, num_classes):
    # Glorot-uniform for 392 kernels; for one, all lengths would be near 1.
    uniform = initializers.VarianceScaling(1 / 392, "fan_avg", "uniform")
    return layers.Capsule(
        num_classes,
        ATOMS,
        share_weights=True,
        use_bias=False,
        kernel_initializer=uniform,
        rule=layers.RoutingRule(
            logits="replace", compare="direction", squash_constant=0.5
        ),
    )(ops.relu(primary))


def self_attention(primary, num_classes):
    layer = layers.SelfAttentionCapsule(num_classes, ATOMS)
    return layer(layers.exponential_squash(primary))


def inverted_attention(poses, hidden, num_classes):
    primary = keras.layers.LayerNormalization(epsilon=1e-5)(poses)
    layer = layers.InvertedAttentionCapsules(num_classes)
    to_score = keras.layers.Dense(1, dtype="float32")
    # The second update; the first is without attention.
    capsules = layer(primary, layer(primary))
    return {"logits": to_score(capsules)[..., 0]}


def vector_routing(poses, hidden, num_classes):
    primary = keras.layers.LayerNormalization(epsilon=1e-5)(poses)
    primary = keras.layers.Reshape((-1, ATOMS))(primary)
    layer = layers.VectorRouting(num_classes, num_atoms=1)
    return {"logits": layer(primary)[..., 0]}


def with_activations(layer):
    """A route for primary capsules with activations, normalized by type."""

    def route(poses, hidden, num_classes):
        poses = normalization(axis=-2)(poses)
        activations = normalization()(convolution(TYPES, 5)(hidden))
        primary = poses, ops.sigmoid(activations)
        return {"logits": layer(num_classes)(primary)[1]}

    return route


# XLA is faster for many small operations.
MATRICES = {"xla": True, "full_float32": True}

# Routing by agreement (Sabour, Frosst, Hinton 2017).
DynamicRouting = compared(vector_capsules(dynamic_routing), margin)
# Su's routing (2018): all input capsules share their weights.
SharedWeights = compared(vector_capsules(shared_weights), margin)
# Self-attention (Mazzia, Salvetti, Chiaberge 2021).
SelfAttention = compared(vector_capsules(self_attention), margin)
# Inverted dot-product attention (Tsai et al. 2020).
InvertedAttention = compared(inverted_attention, softmax, xla=True)
# Routing of vectors by credit (Heinsen 2022).
VectorRouting = compared(vector_routing, softmax)
# EM routing (Hinton, Sabour, Frosst 2018), with the spread loss.
EMRouting = compared(
    with_activations(layers.ClassMatrixCapsules), spread, **MATRICES
)
# Variational Bayes routing (Ribeiro, Leontidis, Kollias 2020).
VBRouting = compared(
    with_activations(layers.ClassVBCapsules), softmax, **MATRICES
)
# Self-routing (Hahn, Pyeon, Kim 2019); activations are probabilities.
SelfRouting = compared(
    with_activations(layers.SelfRoutingCapsules),
    cross_entropy,
    full_float32=True,
)
