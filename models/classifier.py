"""What all models share: losses, metrics, optimiser, what figures may ask."""

import math
import typing

import keras
import numpy as np
from keras import backend, ops

import layers
from input_data import features as keys
from layers.losses import RECONSTRUCTION_WEIGHT, MeanOverBatch
from layers.utils import is_mirrored, is_on_cpu, positions_of
from models import optimizer
from models.hparams import BaseHParams


class Routing(typing.NamedTuple):
    """How a network routes its primary capsules to its class capsules.

    Attributes:
      couplings: float32 tensor [iterations, B, h, w, types, classes].
      leaky: bool, whether the couplings of a capsule may sum to less than 1.
      receptive_field: tuple of (size, strides, padding), as of `layers.utils.Window`:
        the convolutions and poolings from the image to the positions h, w;
        none if there is one position, which sees all of the image.
    """

    couplings: typing.Any
    leaky: bool
    receptive_field: tuple


def on_grid(couplings, grid):
    """[iterations, B, .., classes] -> [iterations, B, *grid, classes]."""
    iterations, *_, classes = couplings.shape
    return ops.reshape(couplings, (iterations, -1, *grid, classes))


class Classifier(keras.Model):
    """A model with `logits`, and perhaps reconstructions, that trains by `fit`.

    The loss is `classification_loss` plus one reconstruction loss for each
    target that the outputs redraw, and in training what layers add to it:
    regularisers and `add_loss`. The running means that `fit` reports are
    named as the reference's summaries, except that its counts of right
    predictions per batch are shares here:

      loss, batch_classification_cost, reconstruction_error (if the outputs
      redraw the image), accuracy, almost_accuracy

    A subclass has a file of its own with its hyper-parameters, and a line in
    `models.registry`. It gives `activations` and `call`, and overrides what
    else is its own.

    Attributes:
      HParams: its hyper-parameters, a subclass of `BaseHParams`.
      has_class_capsules: bool, whether its outputs have `capsules`, one for each
        class.
      fuses: bool, whether TensorFlow compiles its steps by XLA on CPUs too,
        where Keras leaves it out: for steps of many small operations.
      full_float32: bool, whether it needs products of float32 that are not
        rounded to TF32.
      adam_epsilon: float, epsilon of its Adam.

    Args:
      shape: `features.ImageShape`, the images and number of classes.
      num_targets: int, how many objects an image shows.
      hparams: `HParams`.
      **kwargs: of `keras.Model`.
    """

    HParams = BaseHParams
    has_class_capsules = False
    fuses = False
    full_float32 = False
    adam_epsilon = optimizer.ADAM_EPSILON

    def __init__(self, shape, num_targets, hparams, **kwargs):
        super().__init__(**kwargs)
        self.num_targets = num_targets
        self.hparams = hparams
        self.recons = None
        self._mean_over_batch = MeanOverBatch(name="mean_over_batch")
        self._cost = keras.metrics.Mean(name="batch_classification_cost")
        self._accuracy = keras.metrics.MeanMetricWrapper(
            layers.correct, name="accuracy", num_targets=num_targets
        )
        self._almost = keras.metrics.MeanMetricWrapper(
            layers.almost_correct,
            name="almost_accuracy",
            num_targets=num_targets,
        )
        self._reconstruction_error = None

    @property
    def decoder(self):
        """The layer that redraws an image of capsules and labels, or None."""
        return self.recons

    @property
    def xla(self):
        """Whether XLA compiles it, as `compile` is told: a bool, or "auto".

        On TensorFlow see `fuses`; it has no part in mirrored variables. For
        Keras there is a GPU also where it is hidden.
        """
        if backend.backend() != "tensorflow":
            return "auto"
        if self.fuses and not is_mirrored():
            return True
        return False if is_on_cpu() else "auto"

    def create_weights(self, shape):
        """Creates every weight, by one call on an empty image."""
        size = (1, shape.height, shape.width, shape.depth)
        self({keys.IMAGES: np.zeros(size, "float32")})

    def track_reconstructions(self):
        """To be called by models whose outputs include reconstructions."""
        self._reconstruction_error = keras.metrics.Mean(
            name="reconstruction_error"
        )

    def activations(self, images):
        """What each layer gives, by its name, for verbose summaries."""
        raise NotImplementedError

    def capsule_outputs(self, x, capsules):
        """What a model of capsules gives, with what its decoder redraws.

        Args:
          x: dict, the input. Without labels in it the longest capsules are
            redrawn.
          capsules: tensor [B, classes, atoms].

        Returns:
          dict: logits, the lengths; capsules; and with a `decoder` recons,
          with two targets spare_recons.
        """
        logits = layers.lengths(capsules)
        outputs = {keys.LOGITS: logits, keys.CAPSULES: capsules}
        if self.decoder is not None:
            labels = self._labels(x, logits)
            for recons, label in zip(
                keys.RECONS_BY_TARGET, labels, strict=False
            ):
                outputs[recons] = self.decoder(capsules, label)
        return outputs

    def _labels(self, x, logits):
        """The capsules to redraw: those of the labels, else the longest."""
        names = keys.LABEL_BY_TARGET[: self.num_targets]
        if all(x.get(name) is not None for name in names):
            return [x[name] for name in names]
        longest = ops.argsort(-logits, axis=-1)
        return [longest[:, target] for target in range(self.num_targets)]

    def classification_loss(self, labels, outputs, step):
        """The loss of each example without that of reconstructions.

        Args:
          labels: float32 [B, classes], k-hot.
          outputs: dict, what `call` gave.
          step: int64 [B], the steps of the whole training before this one,
            those before a resume included; None outside of training.

        Returns:
          float32 tensor [B].
        """
        loss = layers.CLASSIFICATION_LOSSES[self.hparams.loss_type]
        return loss(labels, outputs[keys.LOGITS])

    def reconstruction_loss(self, images, reconstructions):
        """The loss of each example for one target that is redrawn.

        Args:
          images: tensor [B, H, W, C], pixels in [0, 1].
          reconstructions: tensor of the same shape.

        Returns:
          float32 tensor [B].
        """
        weight = getattr(self.hparams, "remake_weight", RECONSTRUCTION_WEIGHT)
        return layers.reconstruction_loss(images, reconstructions, weight)

    def example_losses(self, x, y, outputs):
        """The two parts of the loss, float32 tensors [B].

        (Not `losses`: Keras has a property of that name, which JAX needs.)

        Args:
          x: dict, the input.
          y: dict, what the outputs are compared with.
          outputs: dict, what `call` gave for x, with the labels in it.

        Returns:
          Pair of the classification loss, and the loss of reconstructions:
          None if there are none.
        """
        # The step comes with the batch: JAX would take the optimiser's as a
        # constant when it traces this.
        cost = self.classification_loss(
            y[keys.LOGITS], outputs, x.get(keys.STEP)
        )
        if self._reconstruction_error is None:
            return cost, None
        return cost, sum(
            self.reconstruction_loss(y[name], outputs[name])
            for name in keys.RECONS_BY_TARGET[: self.num_targets]
        )

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        cost, error = self.example_losses(x, y, y_pred)
        self._cost.update_state(cost)
        if error is not None:
            self._reconstruction_error.update_state(error)
            cost = cost + error
        loss = self._mean_over_batch(cost, cost)
        if self.losses:  # regularisers and `add_loss` of layers
            loss = loss + super().compute_loss()
        return loss

    def logits_and_losses(self, x, y, outputs):
        """What evaluation keeps: logits [B, classes] and the whole loss [B].

        A decay of weights, which training adds, is no loss of an example.
        The arguments are those of `example_losses`.
        """
        cost, error = self.example_losses(x, y, outputs)
        return outputs[keys.LOGITS], cost if error is None else cost + error

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        for metric in (self._accuracy, self._almost):
            metric.update_state(y[keys.LOGITS], y_pred[keys.LOGITS])
        return self.get_metrics_result()

    def routing_of(self, images):
        """The `Routing` of images [B, H, W, C]; None if there is none."""

    @classmethod
    def make_schedule(cls, hparams, max_steps=None):
        """The learning rate by step, see `optimizer.make_schedule`."""
        return optimizer.make_schedule(hparams, max_steps)

    @classmethod
    def make_optimizer(cls, hparams, max_steps=None):
        """The optimiser that `hparams` names; the reference's is Adam.

        Args:
          hparams: `HParams`.
          max_steps: int, steps of the whole training, for schedules that end.
        """
        schedule = cls.make_schedule(hparams, max_steps)
        return optimizer.make_optimizer(
            hparams.optimizer, schedule, cls.adam_epsilon
        )

    @classmethod
    def receptive_field(cls, hparams):
        """As of `Routing`; () if they depend on the size of the image."""
        return ()

    @classmethod
    def positions(cls, size, hparams):
        """How many positions the receptive_field leave of `size` pixels."""
        for window in cls.receptive_field(hparams):
            size = positions_of(size, *window)
        return size

    @classmethod
    def smallest_image(cls, hparams):
        """Height and width below which the receptive_field leave nothing."""
        size = 1
        for kernel, strides, padding in reversed(cls.receptive_field(hparams)):
            size = (size - 1) * strides + (kernel if padding == "VALID" else 1)
        return size

    @classmethod
    def takes_any_size(cls, hparams):
        """Whether the same weights are for images of every size."""
        return False

    @classmethod
    def num_weights(cls, shape, hparams):
        """How many weights the network has, counted before they are made.

        Args:
          shape: `features.ImageShape`.
          hparams: `HParams`.
        """
        variables = cls.tf1_variables(shape, hparams) or {}
        return sum(math.prod(v.shape) for v in variables.values())

    @classmethod
    def tf1_variables(cls, shape, hparams):
        """The weights that a TF1 checkpoint of the reference has.

        Args:
          shape: `features.ImageShape`.
          hparams: `HParams`.

        Returns:
          dict from the reference's name to `Tf1Variable`; None if the
          reference does not have this model.
        """
