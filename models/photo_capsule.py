"""Class capsules on the features of a pretrained network, for photographs."""

import dataclasses
import importlib

import keras
from keras import ops

import layers
from common.errors import UserError, reading
from common.flags import field
from input_data import features as keys
from input_data.kept_features import KeptFeatures
from models.classifier import Classifier, Routing, on_grid
from models.hparams import DecoderHParams, loss_type, network, size


@dataclasses.dataclass(frozen=True)
class HParams(DecoderHParams):
    """Hyper-parameters; short trainings determined the default sizes."""

    backbone: str = network(
        "MobileNetV3Small",
        "network of keras.applications",
        choices=(
            *("EfficientNetV2B0", "MobileNetV2"),
            *("MobileNetV3Small", "ResNet50V2"),
        ),
    )
    backbone_weights: str = field(
        "imagenet",
        "initial weights of backbone: imagenet (downloaded), none, or a file",
    )
    class_atoms: int = size(16, "atoms of a class capsule")
    loss_type: str = loss_type()
    primary_atoms: int = size(8, "atoms of a primary capsule")
    remake: bool = False
    remake_scale: int = size(1, "rows and columns that a decoded pixel fills")
    routing: int = size(3, "routing iterations")
    share_weights: bool = network(
        False, "whether primary capsules share weights; allows any image size"
    )
    train_backbone: bool = field(
        False, "whether to train the backbone; if not, features can be stored"
    )
    types: int = size(32, "types of primary capsules")
    views: int = size(1, "random variants of each image to store features of")


class PhotoCapsuleModel(Classifier):
    """A backbone, primary capsules by a 1x1 convolution, class capsules.

    The backbone (without classification layers) maps images [B, H, W, 1 or 3]
    to features [B, H / 32, W / 32, C]; a frozen backbone is in inference mode.
    Logits are the class capsules' lengths; the decoder is `ConvReconstruction`.
    """

    HParams = HParams
    has_class_capsules = True

    def __init__(self, shape, num_targets, hparams, **kwargs):
        super().__init__(shape, num_targets, hparams, **kwargs)
        if shape.depth not in (1, 3):
            raise UserError(f"{self.name} needs images of 1 or 3 channels")
        self._image = shape.height, shape.width, shape.depth
        self._make_backbone = getattr(keras.applications, hparams.backbone)
        size = (shape.height, shape.width, 3)
        self.backbone = self._make_backbone(
            include_top=False, weights=None, input_shape=size
        )
        self.backbone.trainable = hparams.train_backbone
        for layer in self.backbone.layers:
            if isinstance(layer, keras.layers.BatchNormalization):
                layer.momentum = 0.9  # 0.999 needs thousands of steps
        self.primary = layers.ConvSlimCapsule(
            hparams.types,
            hparams.primary_atoms,
            kernel_size=1,
            num_routing=1,
            kernel_initializer="glorot_uniform",
            name="primary",
        )
        self.flatten = keras.layers.Reshape((-1, hparams.primary_atoms))
        self.classes = layers.Capsule(
            shape.num_classes,
            hparams.class_atoms,
            hparams.routing,
            share_weights=hparams.share_weights,
            name="classes",
        )
        scale = hparams.remake_scale
        self.add_decoder(shape, layers.ConvReconstruction, scale=scale)

    def load_initial_weights(self):
        source = self.hparams.backbone_weights
        if source == "imagenet":
            with reading("without a network pass backbone_weights=FILE"):
                size = (224, 224, 3)
                other = self._make_backbone(include_top=False, input_shape=size)
            self.backbone.set_weights(other.get_weights())
        elif source != "none":
            with reading(source):
                self.backbone.load_weights(source)
        elif not self.hparams.train_backbone:
            raise UserError("backbone_weights=none needs train_backbone=true")

    def features(self, images, training=None):
        """The backbone's features [B, h, w, C] of images [B, H, W, 1 or 3]."""
        pixels = ops.repeat(255.0 * images, 3 // images.shape[-1], axis=-1)
        module = importlib.import_module(self._make_backbone.__module__)
        training = training and self.hparams.train_backbone
        return self.backbone(module.preprocess_input(pixels), training=training)

    def _route(self, features):
        primary = self.primary(ops.expand_dims(features, -2))
        classes = self.classes(self.flatten(primary))
        return {"features": features, "primary": primary, "classes": classes}

    def activations(self, images):
        return self._route(self.features(images))

    def call(self, x, training=None):
        features = x.get(keys.FEATURES)
        if features is None:
            features = self.features(x[keys.IMAGES], training)
        return self.capsule_outputs(x, self._route(features)["classes"])

    def routing_of(self, images):
        primary = self.activations(images)["primary"]
        couplings = self.classes.couplings(self.flatten(primary))
        return Routing(on_grid(couplings, primary.shape[1:4]))

    def training_data(self, pipeline, seed, folder):
        hparams = self.hparams
        if hparams.train_backbone or hparams.remake or self.num_targets == 2:
            return pipeline
        images = keras.Input(self._image)
        network = keras.Model(images, self.features(images))
        options = seed, hparams.views, folder
        return KeptFeatures(pipeline, network, hparams.backbone, *options)

    @classmethod
    def receptive_field(cls, hparams):
        return ((3, 2, "SAME"),) * 5

    @classmethod
    def smallest_image(cls, hparams):
        return 32  # of the backbones

    @classmethod
    def takes_any_size(cls, hparams):
        return hparams.share_weights and not hparams.remake
