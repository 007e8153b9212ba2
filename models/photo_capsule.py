"""Class capsules on the features of a pretrained network, for photographs."""

import keras

import layers
from common.errors import UserError, reading
from common.flags import field
from input_data import keys
from input_data.kept_features import KeptFeatures
from layers.networks.photo_capsule import load_backbone
from models.classifier import Classifier
from models.hparams import DecoderHParams, arguments_of, loss_type, size


class PhotoCapsuleModel(Classifier):
    """`layers.networks.photo_capsule` and, if `remake`, a decoder.

    Stored features can replace the images. Then `route`, the graph from
    features to classes, takes the place of the whole network.
    """

    @arguments_of(layers.networks.photo_capsule)
    class HParams(DecoderHParams):
        """Hyper-parameters; short trainings determined the default sizes."""

        backbone_weights: str = field(
            "imagenet",
            "initial weights of backbone: imagenet (downloaded), none, or a "
            "file",
        )
        loss_type: str = loss_type()
        remake: bool = False
        remake_scale: int = size(
            1, "rows and columns that a decoded pixel fills"
        )
        train_backbone: bool = field(
            False,
            "whether to train the backbone; if not, features can be stored",
        )
        views: int = size(
            1, "random variants of each image to store features of"
        )

        def check_initial_weights(self):
            if self.backbone_weights not in ("imagenet", "none"):
                with reading(self.backbone_weights):
                    open(self.backbone_weights).close()

        def options(self):  # `load_initial_weights` loads the weights
            return {**super().options(), "backbone_weights": None}

    routed_layer, grid = "classes", "primary"

    def __init__(self, shape, num_targets, hparams, **kwargs):
        if shape.depth not in (1, 3):
            raise UserError("photo_capsule needs images of 1 or 3 channels")
        super().__init__(shape, num_targets, hparams, **kwargs)
        tensors = self.tensors.output
        outputs = {name: tensors[name] for name in (keys.LOGITS, keys.CAPSULES)}
        self.route = keras.Model(tensors["features"], outputs)
        scale = hparams.remake_scale
        self.add_decoder(shape, layers.ConvReconstruction, scale=scale)

    def network(self, images, num_classes):
        outputs = super().network(images, num_classes)
        self.backbone = outputs["features"]._keras_history.operation
        return outputs

    def load_initial_weights(self):
        source = self.hparams.backbone_weights
        if source != "none":
            hint = "without a network pass backbone_weights=FILE"
            with reading(hint if source == "imagenet" else source):
                load_backbone(self.backbone, self.hparams.backbone, source)
        elif not self.hparams.train_backbone:
            raise UserError("backbone_weights=none needs train_backbone=true")

    def call(self, x, training=None):
        if keys.FEATURES in x:
            return self.outputs(x, self.route(x[keys.FEATURES]))
        return super().call(x)

    def training_data(self, pipeline, seed, folder):
        hparams = self.hparams
        if hparams.train_backbone or hparams.remake or self.num_targets == 2:
            return pipeline
        features = self.tensors.output["features"]
        network = keras.Model(self.tensors.input, features)
        options = seed, hparams.views, folder
        return KeptFeatures(pipeline, network, hparams.backbone, *options)

    def receptive_field(self, hparams):
        return ((3, 2, "SAME"),) * 5  # a backbone is no chain of layers
