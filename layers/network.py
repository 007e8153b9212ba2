"""The paper's network with its decoder for `fit`, and pretrained networks."""

import pathlib
import warnings
from typing import Literal

import keras
import numpy as np
from keras import ops

from .capsule import Capsule, ConvSlimCapsule, Length
from .convolution import Conv2D
from .losses import MeanOverBatch, reconstruction_loss
from .routing import RoutingRule
from .utils import Layer, Tensor, reference_initializers, require_shape

# Figure 1 of the paper.
KERNEL_SIZE = 9
PRIMARY_STRIDES = 2
# Units of the two hidden layers: section 4.1 of the paper.
HIDDEN_UNITS = (512, 1024)


class CapsuleStack:
    """The layers from images to class capsules: figure 1 of the paper.

    A 9x9 convolution with relu; 9x9 primary capsules with stride 2 and one
    routing iteration; one class capsule per class. It is not a layer: a
    `keras.Model` must store these layers as attributes, to find their weights.

    Args:
      num_classes: int, O.
      conv_channels: int, channels of the convolution.
      num_prime_capsules: int, types of primary capsules.
      primary_atoms, class_atoms: int, atoms of the capsules.
      num_routing: int, routing iterations of the class capsules.
      leaky: bool, whether couplings come from `leaky_softmax`.
      rule: of the class capsules, see `Capsule`.
      padding: "VALID" or "SAME", of both convolutions. "VALID" needs images of
        at least 17x17 pixels.
      kernel_size: int, height and width of the kernels of both convolutions.
      class_bias: bool, whether the class capsules have biases.
      dtype: dtype or policy of the layers, as for `keras.layers.Layer`.

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
        kernel_size: int = KERNEL_SIZE,
        class_bias: bool = True,
        dtype: str | keras.DTypePolicy | None = None,
    ):
        self.conv1 = Conv2D(
            conv_channels,
            kernel_size,
            padding=padding.lower(),
            activation="relu",
            data_format="channels_last",
            dtype=dtype,
            name="conv1",
            **reference_initializers(stddev=0.05),
        )
        self.conv_capsule1 = ConvSlimCapsule(
            num_prime_capsules,
            primary_atoms,
            kernel_size,
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
            use_bias=class_bias,
            dtype=dtype,
            name="capsule2",
        )

    def activations(self, images: Tensor) -> dict[str, Tensor]:
        """Outputs of all layers for images [B, H, W, C], pixels in [0, 1].

        Returns:
          dict: conv1 [B, h, w, conv_channels]; conv_capsule1 [B, h', w',
          num_prime_capsules, primary_atoms]; capsule2 [B, O, A].
        """
        features = self.conv1(images)
        # The channels of a position are the atoms of one input capsule.
        primary = self.conv_capsule1(ops.expand_dims(features, -2))
        # [B, h', w', types, atoms] -> [B, h' * w' * types, atoms]
        capsules = self.capsule2(self.flatten(primary))
        return {
            "conv1": features,
            "conv_capsule1": primary,
            "capsule2": capsules,
        }


def mask_capsules(capsules: Tensor, labels: Tensor) -> Tensor:
    """Sets all capsules [B, O, A] to zero except those of the labels [B].

    Raises ValueError for labels of another shape.
    """
    capsules, labels = map(ops.convert_to_tensor, (capsules, labels))
    require_shape("labels", labels, capsules.shape[:1])
    labels = ops.cast(labels, "int32")
    mask = ops.one_hot(labels, capsules.shape[1], dtype=capsules.dtype)
    return capsules * ops.expand_dims(mask, -1)


@keras.saving.register_keras_serializable(package="capsules")
class Reconstruction(Layer):
    """Decoder: the labeled capsule through three dense layers.

    All other capsules are set to zero. Then follow Dense 512 relu, Dense 1024
    relu and Dense height * width * depth sigmoid (section 4.1 and figure 2 of
    the paper). With two digits the layer is called once for each label.

    Args:
      height, width, depth: int, rows, columns and channels of the images.
      he_normal: bool, whether the initial weights are those of
        Efficient-CapsNet: he-normal, Glorot normal before the sigmoid, and
        biases 0. Otherwise they are those of the reference.

    Call arguments:
      capsules: tensor [B, O, A].
      labels: integer tensor [B], the class to reconstruct.

    Output shape: [B, height, width, depth], values in [0, 1].
    """

    arguments = ("height", "width", "depth", "he_normal")

    def __init__(
        self,
        height: int,
        width: int,
        depth: int,
        he_normal: bool = False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.height = height
        self.width = width
        self.depth = depth
        self.he_normal = he_normal
        self.input_spec = keras.layers.InputSpec(ndim=3)
        units = (*HIDDEN_UNITS, height * width * depth)
        activations = ("relu", "relu", "sigmoid")
        self.dense = []
        for size, activation in zip(units, activations, strict=True):
            initializers = reference_initializers()
            if he_normal:
                name = "he_normal" if activation == "relu" else "glorot_normal"
                initializers = {"kernel_initializer": name}
            layer = keras.layers.Dense(
                size,
                activation=activation,
                **initializers,
                dtype=self.dtype_policy,
                name=f"recons_{len(self.dense) + 1}",
            )
            self.dense.append(layer)

    def build(self, capsules_shape, labels_shape=None):
        units = capsules_shape[1] * capsules_shape[2]
        for layer in self.dense:
            layer.build((None, units))
            units = layer.units

    def call(self, capsules, labels):
        capsules = ops.cast(capsules, self.compute_dtype)
        masked = mask_capsules(capsules, labels)
        _, num_capsules, num_atoms = capsules.shape
        pixels = ops.reshape(masked, (-1, num_capsules * num_atoms))
        for layer in self.dense:
            pixels = layer(pixels)
        return ops.reshape(pixels, (-1, self.height, self.width, self.depth))

    def compute_output_shape(self, capsules_shape, labels_shape=None):
        return (capsules_shape[0], self.height, self.width, self.depth)

    def get_config(self):
        return {
            **super().get_config(),
            # With their adapters, quantization and frozen weights.
            "dense": [layer.get_config() for layer in self.dense],
        }

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        dense = config.pop("dense", None)
        layer = super().from_config(config)
        if dense is not None:
            layer.dense.clear()
            layer.dense.extend(map(keras.layers.Dense.from_config, dense))
        return layer


@keras.saving.register_keras_serializable(package="capsules")
class CapsuleNetwork(keras.Model):
    """The paper's network with its decoder, for `fit` and `predict`.

      network = CapsuleNetwork((28, 28, 1), num_classes=10)
      network.compile("adam", loss=margin_loss, metrics=["accuracy"])
      network.fit(images, one_hot)  # labels [B, 10]
      network.predict(images)["lengths"]

    The loss is the one given to `compile`, of the lengths, plus
    `reconstruction_loss` if there is a decoder. In `fit` and `evaluate` the
    decoder reconstructs from the capsule of the label (section 4.1 of the
    paper); in calls and `predict` from the longest capsule.

    Args:
      input_shape: (H, W, C) of the images.
      num_classes: int, O.
      decoder: bool, whether there is a decoder; the attribute `decoder` is
        then a `Reconstruction`.
      dtype: dtype or policy of the layers, as for `keras.layers.Layer`.
      **sizes: keyword arguments of `CapsuleStack`.

    Call arguments:
      images: tensor [B, H, W, C], pixels in [0, 1].

    Returns (from a call) a dict:
      lengths: float32 [B, O], the probability of each class.
      capsules: [B, O, A], the class capsules.
      remake: [B, H, W, C], the reconstruction, if `decoder`.
    """

    def __init__(
        self,
        input_shape: tuple[int, int, int],
        num_classes: int,
        *,
        decoder: bool = True,
        dtype: str | keras.DTypePolicy | None = None,
        name: str = "capsule_network",
        _graph: keras.Model | None = None,
        **sizes: int | bool | str | RoutingRule | dict,
    ):
        dtype = keras.dtype_policies.get(dtype)
        if _graph is None:
            if input_shape[0] in (1, 3) and input_shape[2] > 4:
                warnings.warn(
                    "`input_shape` should be (height, width, channels). "
                    f"Received: {input_shape}",
                    stacklevel=2,
                )
            images = keras.Input(input_shape, name="images")
            stack = CapsuleStack(num_classes, dtype=dtype, **sizes)
            # Batches of `tf.data` may have an unknown size of images.
            sized = keras.layers.Reshape(input_shape, dtype=dtype)(images)
            capsules = stack.activations(sized)["capsule2"]
            lengths = Length(dtype=dtype, name="lengths")(capsules)
            outputs = {"lengths": lengths, "capsules": capsules}
            if decoder:
                reconstruction = Reconstruction(
                    *input_shape, dtype=dtype, name="remake"
                )
                # TFLite and ONNX lack the bitwise operations of `argmax`.
                longest = ops.argsort(-lengths, axis=-1)[:, 0]
                outputs["remake"] = reconstruction(capsules, longest)
            _graph = keras.Model(images, outputs)
        super().__init__(_graph.input, _graph.output, name=name)
        self.dtype_policy = dtype  # `compile` scales the loss for float16
        self.decoder = self.get_layer("remake") if decoder else None
        self._mean_over_batch = MeanOverBatch()
        self._config = {
            "input_shape": tuple(input_shape),
            "num_classes": num_classes,
            "decoder": decoder,
            "dtype": keras.dtype_policies.serialize(dtype),
            "name": name,
            **sizes,
        }

    def compile(self, *args, **options):
        options = {name: _of_lengths(o) for name, o in options.items()}
        super().compile(*map(_of_lengths, args), **options)

    def compile_from_config(self, config):
        # Keras does not call a `compile` that is overridden.
        self.compile(**keras.saving.deserialize_keras_object(config))
        self.optimizer.build(self.trainable_variables)

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        (y,) = keras.tree.flatten(_of_lengths(y))  # also of a tuple (y,)
        sample_weight = _of_lengths(sample_weight)
        lengths = y_pred["lengths"]
        loss = super().compute_loss(x, y, lengths, sample_weight, training)
        if self.decoder is None:
            return loss
        if len(y.shape) == 3:  # [B, O, 1], which Keras' loss accepts
            y = ops.squeeze(y, -1)
        is_sparse = len(y.shape) == 1 or y.shape[-1] != lengths.shape[-1]
        labels = ops.reshape(y, (-1,)) if is_sparse else ops.argmax(y, axis=-1)
        reconstructions = self.decoder(y_pred["capsules"], labels)
        if isinstance(x, dict):
            x = x["images"]
        # As in the call, images [B, H, W] have one channel.
        x = ops.reshape(x, (-1, *reconstructions.shape[1:]))
        error = reconstruction_loss(x, reconstructions)
        return loss + self._mean_over_batch(error, error, sample_weight)

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        (y,) = keras.tree.flatten(_of_lengths(y))  # also of a tuple (y,)
        sample_weight = _of_lengths(sample_weight)
        lengths = y_pred["lengths"]
        return super().compute_metrics(x, y, lengths, sample_weight)

    def get_config(self):
        # The graph has the layers with their adapters, quantization and
        # frozen weights.
        graph = keras.Model(self.input, self.output, name=self.name)
        return {**self._config, "_graph": graph.get_config()}

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        if "_graph" in config:
            config["_graph"] = keras.Model.from_config(config["_graph"])
        return cls(**config)


def _of_lengths(argument):
    """The entry of the lengths, if an argument is a dict of outputs."""
    if not isinstance(argument, dict):
        return argument
    if list(argument) != ["lengths"]:
        raise ValueError(
            "Losses, metrics, labels and weights belong to the lengths: pass "
            f'one value, or {{"lengths": value}}. Received: {list(argument)}'
        )
    return argument["lengths"]


def pretrained(name: str) -> keras.Model:
    """Loads a trained network.

    "mnist" is Efficient-CapsNet with its decoder, trained on MNIST, with 35 of
    the 10,000 test images wrong. Its weights are rounded to float16; it
    computes in float32.

    Returns:
      `keras.Model` that takes images [B, 28, 28, 1], pixels in [0, 1], and
      returns a dict: logits [B, 10], the lengths of the capsules; capsules
      [B, 10, 16]; recons [B, 28, 28, 1], the reconstruction.

    Raises:
      ValueError: if there is no network of this name.
    """
    if name != "mnist":
        raise ValueError(f'`name` must be "mnist". Received: {name!r}')
    # Written by predict.py --export=layers/mnist.npz.
    with np.load(pathlib.Path(__file__).with_name(f"{name}.npz")) as file:
        config, *weights = file.values()
    network = keras.models.model_from_json(str(config))
    network.set_weights(weights)
    return network
