"""The class of all models: outputs, losses and metrics of one network."""

import contextvars
import math

import keras
from keras import ops
from keras.layers import Conv2D, Dense, DepthwiseConv2D

import layers
from common.errors import UserError
from input_data import keys
from layers.backends import use_full_float32
from layers.losses import MeanOverBatch
from models import graph


class Classifier(keras.Model):
    """A network with scores of classes and, with a decoder, reconstructions.

    The loss is the sum of the classification loss, regularizers, `add_loss` of
    layers and, with a decoder, one reconstruction loss for each target.

    Call arguments:
      x: dict with `images` [B, H, W, C] and, optionally, the classes to decode,
        [B] or k-hot [B, classes]: `recons_label` and, with two targets,
        `spare_label`. Default: the `num_targets` longest capsules or, if
        `num_targets` is `SEVERAL_LABELS`, all longer than `PRESENT_LENGTH`.

    Returns (from a call) a dict:
      logits: float32 [B, classes], the scores; the largest is predicted.
      capsules: [B, classes, atoms], the class capsules, if there are any.
      recons: [B, H, W, C], with a decoder; for two targets also `spare_recons`.

    Attributes:
      row: the `table.Model` that the network belongs to.
      network: `keras.Model` from images to the dict of `row.network`.
      decoder: layer that maps capsules and labels to an image, or None.
      has_class_capsules: bool, whether the outputs have `capsules`.
      has_lengths: bool, whether scores are lengths or activations of capsules.
      num_targets: int, see `keys.Spec`; `SEVERAL_LABELS` needs the margin loss.
      class_weights: float32 [classes], factors of the training loss, or None.
      hparams: instance of `row.hparams`.
    """

    def __init__(self, row, shape, num_targets, hparams, **kwargs):
        super().__init__(**kwargs)
        is_margin = getattr(hparams, "loss_type", None) == "margin"
        several_labels = row.several_labels or is_margin
        if num_targets == keys.SEVERAL_LABELS and not several_labels:
            raise UserError("images of several classes need the margin loss")
        if row.full_float32:
            use_full_float32()
        self.row, self.hparams = row, hparams
        self.num_targets, self.class_weights = num_targets, None
        self._mean_over_batch = MeanOverBatch(name="mean_over_batch")
        self._cost = keras.metrics.Mean(name="batch_classification_cost")
        mean = keras.metrics.MeanMetricWrapper
        options = {"num_targets": num_targets}
        self._accuracy = mean(layers.correct, "accuracy", **options)
        self._almost = mean(layers.almost_correct, "almost_accuracy", **options)
        size = shape.height, shape.width, shape.depth
        images = keras.Input(size, name=keys.IMAGES)
        with keras.name_scope(self.name):  # begins the paths of the weights
            run = contextvars.Context().run  # with the same names each time
            options = self.network_options()
            outputs = run(row.network, images, shape.num_classes, **options)
            self.network = keras.Model(images, outputs)
            self.has_class_capsules = keys.CAPSULES in outputs
            self.has_lengths = self.has_class_capsules and row.has_lengths
            # Set here, not on the class: torch.nn.Module stores modules in its
            # own dict, which a class attribute of this name would hide.
            self.decoder = None
            if getattr(hparams, "remake", False):
                self.decoder = self.make_decoder(*size)
                self._error = keras.metrics.Mean(name="reconstruction_error")
            self.functional()  # builds the decoder
        self.built = True
        if decay := getattr(hparams, "weight_decay", 0):
            regularizer = keras.regularizers.L2(0.5 * decay)
            for weight in self.trainable_weights:
                if len(weight.shape) >= row.decayed_axes:
                    weight.regularizer = regularizer

    def network_options(self):
        return self.hparams.options(self.row.network)

    def make_decoder(self, height, width, depth):
        return self.row.decoder(height, width, depth, name="recons")

    def functional(self):
        """The network and its decoder as a Keras functional model.

        A saved file can be loaded with Keras and `layers` alone. It takes
        images [B, H, W, C], prepared as in training, and returns what a call
        without labels returns.
        """
        outputs = self.outputs({}, self.network.output)
        return keras.Model(self.network.input, outputs, name="export")

    def call(self, x, training=None):
        # Keras passes `training` on to the layers by its call context.
        return self.outputs(x, self.network(x[keys.IMAGES]))

    def outputs(self, x, tensors):
        """Outputs of a call on `x`, from scores and any class capsules."""
        names = keys.LOGITS, keys.CAPSULES
        outputs = {name: tensors[name] for name in names if name in tensors}
        if self.decoder is not None:
            scores, capsules = outputs.values()
            if self.num_targets == keys.SEVERAL_LABELS:
                labels = [scores > keys.PRESENT_LENGTH]
            else:
                longest = ops.argsort(-scores, axis=-1)
                labels = [longest[:, n] for n in range(self.num_targets)]
            for n, label in enumerate(labels):
                label = x.get(keys.LABEL_BY_TARGET[n], label)
                name = keys.RECONS_BY_TARGET[n]
                outputs[name] = self.decoder(capsules, label)
        return outputs

    def activations(self, images):
        """Dict of the outputs of layers by name, for verbose summaries."""
        others = keys.LOGITS, keys.CAPSULES
        outputs = self.network(images)
        return {name: x for name, x in outputs.items() if name not in others}

    def example_losses(self, x, y, outputs, **options):
        """Losses [B]: classification, reconstruction (or 0), and their sum."""
        row, hparams, error = self.row, self.hparams, 0
        # The batch has the step: JAX would trace `iterations` as a constant.
        step, scores = x.get(keys.STEP), outputs[keys.LOGITS]
        cost = row.loss(y[keys.LABELS], scores, step, hparams, **options)
        for name in keys.RECONS_BY_TARGET:
            if name in outputs:
                images = y[name], outputs[name]
                error += row.reconstruction_loss(*images, hparams.remake_weight)
        return cost, error, cost + error

    def _weighted_losses(self, x, y, outputs, total):
        """The losses `total` [B], times the mean weight of an image's targets.

        With several labels, weights multiply the terms of present classes.
        """
        weights = ops.convert_to_tensor(self.class_weights)
        if self.num_targets == keys.SEVERAL_LABELS:
            return self.example_losses(x, y, outputs, present_weight=weights)[2]
        return total * ops.sum(y[keys.LABELS] * weights, -1) / self.num_targets

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        cost, error, total = self.example_losses(x, y, y_pred)
        self._cost.update_state(cost)
        if self.decoder is not None:
            self._error.update_state(error)
        if training and self.class_weights is not None:
            total = self._weighted_losses(x, y, y_pred, total)
        loss = self._mean_over_batch(cost, total)
        if self.losses:  # regularizers and `add_loss` of layers
            loss = loss + super().compute_loss()
        return loss

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        for metric in (self._accuracy, self._almost):
            metric.update_state(y[keys.LABELS], y_pred[keys.LOGITS])
        return self.get_metrics_result()

    def scores_and_losses(self, x, y, outputs):
        """Scores [B, classes]; losses [B, 2], see `scores.Predictions`."""
        cost, _, total = self.example_losses(x, y, outputs)
        return outputs[keys.LOGITS], ops.stack([total, cost], axis=-1)

    def routing_of(self, images):
        """The `Routing` of images [B, H, W, C]; None if nothing is routed."""
        return self.row.routed_layer and graph.routing_of(self, images)

    def receptive_field(self):
        """The layers between the image and the h x w grid of `Routing`.

        Returns a tuple of triples (size, strides, padding); an empty one if a
        position sees the whole image.
        """
        return graph.receptive_field(self) if self.row.routed_layer else ()

    def multiply_adds(self):
        """Number of multiplications of inputs by weights, for one image.

        Decoder, biases, normalization and routing are not counted: routing
        would add 1 M to the 201 M of Sabour's network. Returns None if a
        layer's number is unknown.
        """
        return _multiply_adds(self.network)


def _multiply_adds(layer):
    if isinstance(layer, keras.Model):
        counts = [_multiply_adds(part) for part in layer.layers if part.weights]
        return None if None in counts else sum(counts)
    input_shape = keras.tree.map_structure(
        lambda tensor: tuple(tensor.shape), layer.input
    )
    if hasattr(layer, "multiply_adds"):
        return layer.multiply_adds(input_shape)
    if isinstance(layer, (Conv2D, Dense, DepthwiseConv2D)):
        positions = layer.compute_output_shape(input_shape)[1:-1]
        return math.prod(positions) * math.prod(layer.kernel.shape)
    is_normalization = all(len(weight.shape) == 1 for weight in layer.weights)
    return 0 if is_normalization else None
