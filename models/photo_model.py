"""Photographs: features of a pretrained network, computed once and stored."""

import keras

from common.errors import UserError, user_errors
from input_data import keys
from input_data.kept_features import KeptFeatures
from layers.networks.photo_capsule import load_backbone
from models.classifier import Classifier


class PhotoModel(Classifier):
    """A class of its own, because stored features can replace the images."""

    def __init__(self, row, shape, num_targets, hparams, **kwargs):
        if shape.depth not in (1, 3):
            raise UserError("photo_capsule needs images of 1 or 3 channels")
        super().__init__(row, shape, num_targets, hparams, **kwargs)
        tensors = self.network.output
        outputs = {name: tensors[name] for name in (keys.LOGITS, keys.CAPSULES)}
        self.backbone = tensors["features"]._keras_history.operation
        # Takes the place of the whole network if features are stored.
        self.route = keras.Model(tensors["features"], outputs)

    def network_options(self):  # `load_initial_weights` loads the weights
        return {**super().network_options(), "backbone_weights": None}

    def make_decoder(self, height, width, depth):
        scale = self.hparams.remake_scale
        size = height, width, depth
        return self.row.decoder(*size, scale=scale, name="recons")

    @staticmethod
    def check_initial_weights(hparams):
        """Raises UserError if a file of initial weights is missing."""
        if hparams.backbone_weights not in ("imagenet", "none"):
            with user_errors(hparams.backbone_weights):
                open(hparams.backbone_weights).close()

    def load_initial_weights(self):
        """Loads the backbone's weights before a new training."""
        source = self.hparams.backbone_weights
        if source != "none":
            hint = "without a network pass backbone_weights=FILE"
            with user_errors(hint if source == "imagenet" else source):
                load_backbone(self.backbone, self.hparams.backbone, source)
        elif not self.hparams.train_backbone:
            raise UserError("backbone_weights=none needs train_backbone=true")

    def call(self, x, training=None):
        if keys.FEATURES in x:
            return self.outputs(x, self.route(x[keys.FEATURES]))
        return super().call(x)

    def training_data(self, pipeline, seed, folder):
        """The `Pipeline` to train with; `folder` keeps files for later runs."""
        hparams = self.hparams
        if hparams.train_backbone or hparams.remake or self.num_targets == 2:
            return pipeline
        features = self.network.output["features"]
        network = keras.Model(self.network.input, features)
        options = seed, hparams.views, folder
        return KeptFeatures(pipeline, network, hparams.backbone, *options)

    def receptive_field(self):
        return ((3, 2, "SAME"),) * 5  # a backbone is no chain of layers
