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
from input_data import keys
from layers import use_full_float32
from models.classifier import Classifier

TYPES, ATOMS = 8, 16
convolution = partial(keras.layers.Conv2D, strides=2, padding="same")
normalization = partial(keras.layers.BatchNormalization, momentum=0.9)


class _Comparison(Classifier):
    """Base class; `route` gives outputs for poses [B, h, w, types, atoms]."""

    def network(self, images, num_classes):
        hidden = ops.relu(normalization()(convolution(64, 5)(images)))
        poses = convolution(TYPES * ATOMS, 5)(hidden)
        poses = keras.layers.Reshape((*poses.shape[1:3], TYPES, ATOMS))(poses)
        return self.route(poses, hidden, num_classes)

    def classification_loss(self, labels, outputs, step):
        return layers.softmax_loss(labels, outputs[keys.LOGITS])


class _VectorCapsules(_Comparison):
    """Base class; logits are lengths of `classes` of capsules [B, I, atoms]."""

    def route(self, poses, hidden, num_classes):
        primary = keras.layers.Reshape((-1, ATOMS))(poses)
        capsules = self.classes(primary, num_classes)
        return {keys.LOGITS: layers.lengths(capsules), keys.CAPSULES: capsules}

    def classification_loss(self, labels, outputs, step):
        return layers.margin_loss(labels, outputs[keys.LOGITS])


class DynamicRouting(_VectorCapsules):
    """Routing by agreement (Sabour, Frosst, Hinton 2017)."""

    def classes(self, primary, num_classes):
        return layers.Capsule(num_classes, ATOMS)(layers.squash(primary))


class SharedWeights(_VectorCapsules):
    """Su's routing (2018): all input capsules share their weights."""

    def classes(self, primary, num_classes):
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


class SelfAttention(_VectorCapsules):
    """Self-attention (Mazzia, Salvetti, Chiaberge 2021)."""

    def classes(self, primary, num_classes):
        layer = layers.SelfAttentionCapsule(num_classes, ATOMS)
        return layer(layers.exponential_squash(primary))


class InvertedAttention(_Comparison):
    """Inverted dot-product attention (Tsai et al. 2020)."""

    compile_with_xla = True  # faster for many small operations

    def route(self, poses, hidden, num_classes):
        primary = keras.layers.LayerNormalization(epsilon=1e-5)(poses)
        layer = layers.InvertedAttentionCapsules(num_classes)
        to_logit = keras.layers.Dense(1, dtype="float32")
        # The second update; the first is without attention.
        capsules = layer(primary, layer(primary))
        return {keys.LOGITS: to_logit(capsules)[..., 0]}


class VectorRouting(_Comparison):
    """Routing of vectors by credit (Heinsen 2022)."""

    def route(self, poses, hidden, num_classes):
        primary = keras.layers.LayerNormalization(epsilon=1e-5)(poses)
        primary = keras.layers.Reshape((-1, ATOMS))(primary)
        layer = layers.VectorRouting(num_classes, num_atoms=1)
        return {keys.LOGITS: layer(primary)[..., 0]}


class _WithActivations(_Comparison):
    """Base class: primary capsules with activations, normalized by type."""

    def route(self, poses, hidden, num_classes):
        use_full_float32()  # variances are small differences
        poses = normalization(axis=-2)(poses)
        activations = normalization()(convolution(TYPES, 5)(hidden))
        primary = poses, ops.sigmoid(activations)
        return {keys.LOGITS: self.layer(num_classes)(primary)[1]}


class EMRouting(_WithActivations):
    """EM routing (Hinton, Sabour, Frosst 2018), with the spread loss."""

    compile_with_xla = True
    layer = layers.ClassMatrixCapsules

    def classification_loss(self, labels, outputs, step):
        margin = layers.spread_margin(step, margin_steps=1000)
        return layers.spread_loss(labels, outputs[keys.LOGITS], margin)


class VBRouting(_WithActivations):
    """Variational Bayes routing (Ribeiro, Leontidis, Kollias 2020)."""

    compile_with_xla = True
    layer = layers.ClassVBCapsules


class SelfRouting(_WithActivations):
    """Self-routing (Hahn, Pyeon, Kim 2019)."""

    layer = layers.SelfRoutingCapsules
    classification_loss = Classifier.classification_loss  # of probabilities
