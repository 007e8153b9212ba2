"""The capsule network of the paper's section 4, to train and to predict."""

from typing import Literal

import keras
from keras import ops

from .capsule import Capsule, ConvSlimCapsule, Length, require_whole
from .convolution import Conv2D
from .losses import MeanOverBatch, reconstruction_loss
from .reconstruction import Reconstruction
from .routing import RoutingRule
from .utils import Tensor, reference_initializers

# The paper's figure 1.
KERNEL_SIZE = 9
CONV_STDDEV = 0.05
PRIMARY_STRIDES = 2


class CapsuleStack:
    """The layers of the paper's figure 1, from images to class capsules.

    Convolution 9x9 to `conv_channels` channels, relu; primary capsules 9x9
    stride 2, `num_prime_capsules` types of `primary_atoms` atoms, one routing
    iteration; a class capsule of `class_atoms` atoms for each class,
    `num_routing` iterations.

    Args:
      num_classes: int, O.
      conv_channels: int.
      num_prime_capsules: int.
      primary_atoms: int.
      class_atoms: int, A.
      num_routing: int >= 1, routing iterations of the class capsules.
      leaky: bool, whether an input capsule may be routed nowhere.
      rule: `RoutingRule` of the class capsules or a dict of its attributes,
        if their routing is not the paper's; says whether it is leaky.
      padding: "VALID" or "SAME", of both convolutions. With VALID an image
        has at least 17x17 pixels.
      dtype: string or policy, the layers' types of numbers; by default those
        of `keras.config.dtype_policy()`.

    Attributes:
      conv1, conv_capsule1, flatten, capsule2: the layers, in their order.
    """

    def __init__(
        self,
        num_classes: int,
        *,
        conv_channels: int = 256,
        num_prime_capsules: int = 32,
        primary_atoms: int = 8,
        class_atoms: int = 16,
        num_routing: int = 3,
        leaky: bool = False,
        rule: RoutingRule | dict | None = None,
        padding: Literal["VALID", "SAME"] = "VALID",
        dtype: str | keras.DTypePolicy | None = None,
    ):
        self.conv1 = Conv2D(
            conv_channels,
            KERNEL_SIZE,
            padding=padding.lower(),
            activation="relu",
            data_format="channels_last",
            dtype=dtype,
            name="conv1",
            **reference_initializers(stddev=CONV_STDDEV),
        )
        self.conv_capsule1 = ConvSlimCapsule(
            num_prime_capsules,
            primary_atoms,
            KERNEL_SIZE,
            strides=PRIMARY_STRIDES,
            padding=padding,
            num_routing=1,
            leaky=leaky,
            dtype=dtype,
            name="conv_capsule1",
        )
        self.flatten = keras.layers.Reshape((-1, primary_atoms), dtype=dtype)
        self.capsule2 = Capsule(
            num_classes,
            class_atoms,
            num_routing=num_routing,
            leaky=leaky,
            rule=rule,
            dtype=dtype,
            name="capsule2",
        )

    def activations(self, images: Tensor) -> dict[str, Tensor]:
        """What the layers give, by their names: the last are class capsules.

        Args:
          images: tensor [B, H, W, C], pixels in [0, 1].

        Returns:
          dict: conv1 [B, h, w, conv_channels]; conv_capsule1 [B, h', w',
          num_prime_capsules, primary_atoms]; capsule2 [B, O, A].
        """
        features = self.conv1(images)
        # All channels of a position are the atoms of one input capsule.
        primary = self.conv_capsule1(ops.expand_dims(features, -2))
        # [B, h, w, types, atoms] -> [B, h * w * types, atoms]
        capsules = self.capsule2(self.flatten(primary))
        return {
            "conv1": features,
            "conv_capsule1": primary,
            "capsule2": capsules,
        }


@keras.saving.register_keras_serializable(package="capsules")
class CapsuleNetwork(keras.Model):
    """The paper's network with its decoder, for `fit` and `predict`.

      network = CapsuleNetwork((28, 28, 1), num_classes=10)
      network.compile("adam", loss=margin_loss, metrics=["accuracy"])
      network.fit(images, one_hot)  # labels [B, 10]
      network.predict(images)["lengths"]

    The loss is that of the lengths, which `compile` is given, and with a
    decoder `reconstruction_loss`. While it trains, and in `evaluate`, the
    capsule of the label is redrawn, as in the paper's section 4.1; in calls
    and in `predict`, where there is no label, the longest.

    `CapsuleNetwork.from_config(network.get_config())` gives another of the
    same layers; `keras.models.clone_model` would give a plain network, which
    does not know how this one is trained.

    Args:
      input_shape: (H, W, C) of the images.
      num_classes: int, O.
      decoder: bool, whether it redraws the image.
      dtype: string or policy, the layers' types of numbers, with which the
        network is also saved; by default `keras.config.dtype_policy()`.
      name: string.
      **sizes: keyword arguments of `CapsuleStack`.

    Call arguments:
      images: tensor [B, H, W, C], pixels in [0, 1].

    Returns (from a call) a dict:
      lengths: float32 [B, O], of the class capsules: how likely each class is.
      capsules: [B, O, A], the class capsules.
      remake: [B, H, W, C], the image redrawn, if `decoder`.

    Attributes:
      decoder: `Reconstruction` or None, to redraw capsules that were changed.
    """

    def __init__(
        self,
        input_shape: tuple[int, int, int],
        num_classes: int,
        *,
        decoder: bool = True,
        dtype: str | keras.DTypePolicy | None = None,
        name: str = "capsule_network",
        **sizes: int | bool | str | RoutingRule | dict,
    ):
        images = keras.Input(input_shape, name="images")
        dtype = keras.dtype_policies.get(dtype)
        stack = CapsuleStack(num_classes, dtype=dtype, **sizes)
        capsules = stack.activations(images)["capsule2"]
        lengths = Length(dtype=dtype, name="lengths")(capsules)
        outputs = {"lengths": lengths, "capsules": capsules}
        remake = None
        if decoder:
            remake = Reconstruction(*input_shape, dtype=dtype, name="remake")
            outputs["remake"] = remake(capsules, ops.argmax(lengths, axis=-1))
        super().__init__(images, outputs, name=name)
        self.dtype_policy = dtype  # by which `compile` scales the loss
        self.decoder = remake
        self._mean_over_batch = MeanOverBatch()
        self._config = {
            "input_shape": tuple(input_shape),
            "num_classes": num_classes,
            "decoder": decoder,
            "dtype": keras.dtype_policies.serialize(dtype),
            "name": name,
            **sizes,
        }

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        lengths = y_pred["lengths"]
        self._require_one_hot(y, lengths)
        loss = super().compute_loss(x, y, lengths, sample_weight, training)
        if self.decoder is None:
            return loss
        remake = self.decoder(y_pred["capsules"], ops.argmax(y, axis=-1))
        error = reconstruction_loss(x, remake)
        return loss + self._mean_over_batch(error, error, sample_weight)

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        lengths = y_pred["lengths"]
        self._require_one_hot(y, lengths)
        return super().compute_metrics(x, y, lengths, sample_weight)

    def _require_one_hot(self, y, lengths):
        given = None if y is None else tuple(y.shape)
        expected = tuple(lengths.shape[1:])
        if given is None or (None not in given[1:] and given[1:] != expected):
            raise ValueError(
                f"{self.name} takes one-hot labels [B, {expected[0]}], such "
                f"as keras.utils.to_categorical makes. Received: {given}"
            )

    def get_config(self):
        require_whole(self.get_layer("capsule2").rule)
        # Of each weight, as a part of a layer may be frozen.
        trainable = [weight.trainable for weight in self.weights]
        return {**self._config, "trainable": trainable}

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        trainable = config.pop("trainable")
        network = cls(**config)
        for weight, value in zip(network.weights, trainable, strict=True):
            weight.trainable = value
        return network
