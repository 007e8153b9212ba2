"""The paper's network and decoder as a Keras model, for `fit`."""

import warnings
from typing import Any

import keras
from keras import ops

from .base_layers import Tensor, registered
from .losses import MeanOverBatch, reconstruction_loss
from .networks.capsule import capsule
from .reconstruction import Reconstruction


@registered
class CapsuleNetwork(keras.Model):
    """The paper's network with its decoder, for `fit` and `predict`.

      network = CapsuleNetwork((28, 28, 1), num_classes=10)
      network.compile("adam", loss=margin_loss, metrics=["accuracy"])
      network.fit(images, one_hot)  # labels [B, 10]
      network.predict(images)["lengths"]

    The loss given to `compile` is computed from the lengths. With a decoder,
    `reconstruction_loss` is added. In `fit` and `evaluate` the decoder sees the
    capsules of the labels (section 4.1 of the paper), else the longest capsule.

    Args:
      input_shape: (H, W, C) of the images.
      num_classes: int, O.
      decoder: bool, whether there is a `decoder`, a `Reconstruction`.
      dtype: dtype or policy of the layers, as for `keras.layers.Layer`.
      **sizes: keyword arguments of `networks.capsule`.

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
        _graph: dict[str, Any] | None = None,
        **sizes: Any,
    ):
        dtype = keras.dtype_policies.get(dtype)
        if _graph:
            graph = keras.Model.from_config(_graph)
        else:
            if input_shape[0] in (1, 3) and input_shape[2] > 4:
                warnings.warn(
                    "`input_shape` should be (height, width, channels). "
                    f"Received: {input_shape}",
                    stacklevel=2,
                )
            images = keras.Input(input_shape, name="images")
            # In `tf.data` the height and width of images may be unknown.
            sized = keras.layers.Reshape(input_shape, dtype=dtype)(images)
            tensors = capsule(sized, num_classes, dtype, "", **sizes)
            lengths, capsules = tensors["logits"], tensors["capsules"]
            outputs = {"lengths": lengths, "capsules": capsules}
            if decoder:
                remake = Reconstruction(
                    *input_shape, dtype=dtype, name="remake"
                )
                # TFLite and ONNX lack the bitwise operations of `argmax`.
                longest = ops.argsort(-lengths, axis=-1)[:, 0]
                outputs["remake"] = remake(capsules, longest)
            graph = keras.Model(images, outputs)
        super().__init__(graph.inputs[0], graph.output, name=name)
        self.dtype_policy = dtype  # `compile` scales the loss for float16
        self.decoder = self.get_layer("remake") if decoder else None
        self._config = {
            "input_shape": tuple(input_shape),
            "num_classes": num_classes,
            "decoder": decoder,
            "dtype": keras.dtype_policies.serialize(dtype),
            "name": name,
            **sizes,
        }

    def compile(self, *args: Any, **options: Any) -> None:
        options = {name: _of_lengths(o) for name, o in options.items()}
        super().compile(*map(_of_lengths, args), **options)

    def compile_from_config(self, config: dict[str, Any]) -> None:
        # Keras does not call a `compile` that is overridden.
        self.compile(**keras.saving.deserialize_keras_object(config))
        self.optimizer.build(self.trainable_variables)

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Tensor:
        (y,) = keras.tree.flatten(_of_lengths(y))  # also of a tuple (y,)
        sample_weight = _of_lengths(sample_weight)
        lengths = y_pred["lengths"]
        loss = super().compute_loss(x, y, lengths, sample_weight, training)
        if self.decoder is None:
            return loss
        labels = ops.reshape(ops.cast(y, "float32"), (-1,))
        # Keras' losses take k-hot labels [B, O], [B, O, 1] or, if O is 1, [B].
        num_classes = lengths.shape[-1]
        if num_classes in (1, *y.shape[1:]):
            labels = ops.reshape(labels, (-1, num_classes)) > 0.5
        reconstructions = self.decoder(y_pred["capsules"], labels)
        if isinstance(x, dict):
            x = x["images"]
        # Images [B, H, W] have one channel here, as in `call`.
        x = ops.reshape(x, (-1, *reconstructions.shape[1:]))
        error = reconstruction_loss(x, reconstructions)
        return loss + MeanOverBatch()(error, error, sample_weight)

    def compute_metrics(
        self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None
    ) -> dict[str, Any]:
        (y,) = keras.tree.flatten(_of_lengths(y))  # also of a tuple (y,)
        sample_weight = _of_lengths(sample_weight)
        lengths = y_pred["lengths"]
        return super().compute_metrics(x, y, lengths, sample_weight)

    def get_config(self) -> dict[str, Any]:
        # The graph keeps adapters, quantization and frozen weights.
        graph = keras.Model(self.input, self.output, name=self.name)
        return {**self._config, "_graph": graph.get_config()}


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
