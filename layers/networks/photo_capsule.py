"""Class capsules on the features of a backbone network, for photographs."""

import importlib
from typing import Literal

import keras
from keras import ops

from ..capsule import Capsule, ConvSlimCapsule
from .base import Tensor, Tensors, network


def load_backbone(backbone: keras.Model, name: str, weights: str) -> None:
    """Loads weights: "imagenet" (downloaded) or a file of Keras' weights."""
    if weights == "imagenet":
        make = getattr(keras.applications, name)
        other = make(include_top=False, input_shape=(224, 224, 3))
        backbone.set_weights(other.get_weights())
    else:
        backbone.load_weights(weights)


@network()
def photo_capsule(
    images: Tensor,
    num_classes: int,
    *,
    backbone: Literal[
        "EfficientNetV2B0", "MobileNetV2", "MobileNetV3Small", "ResNet50V2"
    ] = "MobileNetV3Small",
    backbone_weights: str | None = None,
    train_backbone: bool = True,
    types: int = 32,
    primary_atoms: int = 8,
    class_atoms: int = 16,
    num_routing: int = 3,
    share_weights: bool = False,
) -> Tensors:
    """A backbone, primary capsules by a 1x1 convolution, class capsules.

    The backbone, without its classification layers, maps images to features
    [B, H / 32, W / 32, C]. Logits are the class capsules' lengths. Images have
    1 or 3 channels and at least 32x32 pixels.

    Args:
      backbone: str, network of keras.applications.
      backbone_weights: None (random), "imagenet" (downloaded), or a file.
      train_backbone: bool, whether to train the backbone; if not, it is in
        inference mode.
      types: int, types of primary capsules.
      primary_atoms: int, atoms of a primary capsule.
      class_atoms: int, atoms of a class capsule.
      num_routing: int, routing iterations.
      share_weights: bool, whether primary capsules share weights; allows any
        image size.
    """
    make = getattr(keras.applications, backbone)
    _, height, width, channels = images.shape
    body = make(include_top=False, weights=None, input_shape=(height, width, 3))
    body.trainable = train_backbone
    for layer in body.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.momentum = 0.9  # 0.999 needs thousands of steps
    if backbone_weights:
        load_backbone(body, backbone, backbone_weights)
    pixels = ops.repeat(255.0 * images, 3 // channels, axis=-1)
    pixels = importlib.import_module(make.__module__).preprocess_input(pixels)
    features = body(pixels, training=None if train_backbone else False)
    primary = ConvSlimCapsule(
        types,
        primary_atoms,
        kernel_size=1,
        num_routing=1,
        kernel_initializer="glorot_uniform",
        name="primary",
    )(ops.expand_dims(features, -2))
    flat = keras.layers.Reshape((-1, primary_atoms))(primary)
    classes = Capsule(
        num_classes,
        class_atoms,
        num_routing,
        share_weights=share_weights,
        name="classes",
    )(flat)
    return {
        "features": features,
        "primary": primary,
        "classes": classes,
        "capsules": classes,
    }
