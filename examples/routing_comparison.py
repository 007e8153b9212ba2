"""Eight models that differ in their routing, to be trained by compare.py.

All models have the same convolutions and primary capsules: 8 types of capsules
with 16 atoms, at each of 7x7 positions of an image of 28x28 pixels. One routed
layer turns them into class capsules; there is no decoder and no weight decay.
The loss, and the activation or normalization of primary capsules, follow each
model's authors, with three exceptions. In `SharedWeights`, absent classes have
the loss weight 0.5 of Sabour's paper. `EMRouting` normalizes primary capsules;
its authors do not. `SelfRouting` normalizes all atoms of a type together.
"""

import math
from functools import partial

import keras
from keras import initializers, ops

import layers
from input_data import features as keys
from layers.utils import use_full_float32
from models.classifier import Classifier

TYPES, ATOMS = 8, 16
convolution = partial(keras.layers.Conv2D, strides=2, padding="same")
normalization = partial(keras.layers.BatchNormalization, momentum=0.9)


class _Comparison(Classifier):
    """Base class; a subclass defines `add_classes` and `outputs`."""

    def __init__(self, shape, num_targets, hparams, **kwargs):
        super().__init__(shape, num_targets, hparams, **kwargs)
        self.conv1, self.norm1 = convolution(64, 5), normalization()
        self.conv2 = convolution(TYPES * ATOMS, 5)
        self.add_classes(shape.num_classes)

    def call(self, x, training=None):  # the layers see `training`
        hidden = ops.relu(self.norm1(self.conv1(x[keys.IMAGES])))
        poses = self.conv2(hidden)
        poses = ops.reshape(poses, (-1, *poses.shape[1:3], TYPES, ATOMS))
        return self.outputs(poses, hidden)

    def classification_loss(self, labels, outputs, step):
        return layers.softmax_loss(labels, outputs[keys.LOGITS])


class _VectorCapsules(_Comparison):
    """Base class: logits are the lengths of the class capsules."""

    has_class_capsules = True

    def outputs(self, poses, hidden):
        poses = ops.reshape(poses, (-1, math.prod(poses.shape[1:4]), ATOMS))
        capsules = self.classes(self.activation(poses))
        return {keys.LOGITS: layers.lengths(capsules), keys.CAPSULES: capsules}

    def classification_loss(self, labels, outputs, step):
        return layers.margin_loss(labels, outputs[keys.LOGITS])


class DynamicRouting(_VectorCapsules):
    """Routing by agreement (Sabour, Frosst, Hinton 2017)."""

    def add_classes(self, num_classes):
        self.activation = layers.squash
        self.classes = layers.Capsule(num_classes, ATOMS)


class SharedWeights(_VectorCapsules):
    """Su's routing (2018): all input capsules share their weights."""

    def add_classes(self, num_classes):
        self.activation = ops.relu
        # Glorot-uniform for 392 kernels; for one, all lengths would be near 1.
        uniform = initializers.VarianceScaling(1 / 392, "fan_avg", "uniform")
        self.classes = layers.Capsule(
            num_classes,
            ATOMS,
            share_weights=True,
            use_bias=False,
            kernel_initializer=uniform,
            rule=layers.RoutingRule(
                logits="replace", compare="direction", squash_constant=0.5
            ),
        )


class SelfAttention(_VectorCapsules):
    """Self-attention (Mazzia, Salvetti, Chiaberge 2021)."""

    def add_classes(self, num_classes):
        self.activation = layers.exponential_squash
        self.classes = layers.SelfAttentionCapsule(num_classes, ATOMS)


class InvertedAttention(_Comparison):
    """Inverted dot-product attention (Tsai et al. 2020)."""

    compile_with_xla = True  # faster for many small operations

    def add_classes(self, num_classes):
        self.norm2 = keras.layers.LayerNormalization(epsilon=1e-5)
        self.classes = layers.InvertedAttentionCapsules(num_classes)
        self.logit = keras.layers.Dense(1, dtype="float32")

    def outputs(self, poses, hidden):
        primary = self.norm2(poses)
        # The second update; the first is without attention.
        capsules = self.classes(primary, self.classes(primary))
        return {keys.LOGITS: self.logit(capsules)[..., 0]}


class VectorRouting(_Comparison):
    """Routing of vectors by credit (Heinsen 2022)."""

    def add_classes(self, num_classes):
        self.norm2 = keras.layers.LayerNormalization(epsilon=1e-5)
        self.classes = layers.VectorRouting(num_classes, num_atoms=1)

    def outputs(self, poses, hidden):
        poses = ops.reshape(poses, (-1, math.prod(poses.shape[1:4]), ATOMS))
        return {keys.LOGITS: self.classes(self.norm2(poses))[..., 0]}


class _WithActivations(_Comparison):
    """Base class: primary capsules with activations, normalized by type."""

    def add_classes(self, num_classes):
        use_full_float32()  # variances are small differences
        self.norm2 = normalization(axis=-2)
        self.conv3, self.norm3 = convolution(TYPES, 5), normalization()
        self.classes = self.class_layer(num_classes)

    def outputs(self, poses, hidden):
        activations = ops.sigmoid(self.norm3(self.conv3(hidden)))
        return {keys.LOGITS: self.classes((self.norm2(poses), activations))[1]}


class EMRouting(_WithActivations):
    """EM routing (Hinton, Sabour, Frosst 2018), with the spread loss."""

    class_layer = layers.ClassMatrixCapsules
    compile_with_xla = True

    def classification_loss(self, labels, outputs, step):
        margin = layers.spread_margin(step, margin_steps=1000)
        return layers.spread_loss(labels, outputs[keys.LOGITS], margin)


class VBRouting(_WithActivations):
    """Variational Bayes routing (Ribeiro, Leontidis, Kollias 2020)."""

    class_layer = layers.ClassVBCapsules
    compile_with_xla = True


class SelfRouting(_WithActivations):
    """Self-routing (Hahn, Pyeon, Kim 2019)."""

    class_layer = layers.SelfRoutingCapsules
    classification_loss = Classifier.classification_loss  # of probabilities
