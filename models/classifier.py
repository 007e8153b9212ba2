"""What all models share: how outputs are scored, in training and testing."""

import keras

import layers
from input_data import features as keys


class _MeanOverBatch(keras.losses.Loss):
    """The mean of values [B] over the whole batch, all replicas together.

    `keras.losses.Loss` knows how to divide when the batch is split over
    several devices.
    """

    def call(self, y_true, y_pred):
        return y_pred


class Classifier(keras.Model):
    """A model with `logits`, and perhaps reconstructions, that trains by `fit`.

    The loss is the classification loss of `hparams.loss_type` plus one
    reconstruction loss for each target that the outputs redraw. The running
    means that `fit` reports are named as the reference's summaries, except
    that its counts of right predictions per batch are shares here:

      loss, batch_classification_cost, reconstruction_error (if the outputs
      redraw the image), accuracy, almost_accuracy

    Args:
      num_targets: int, how many objects an image shows.
      hparams: `HParams`.
      **kwargs: of `keras.Model`.
    """

    def __init__(self, num_targets, hparams, **kwargs):
        super().__init__(**kwargs)
        self.num_targets = num_targets
        self._classification_loss = layers.CLASSIFICATION_LOSSES[
            hparams.loss_type
        ]
        self._mean_over_batch = _MeanOverBatch(name="mean_over_batch")
        self._cost = keras.metrics.Mean(name="batch_classification_cost")
        self._accuracy = layers.Accuracy(num_targets, name="accuracy")
        self._almost = layers.AlmostAccuracy(
            num_targets, name="almost_accuracy"
        )
        self._reconstruction_error = None

    def track_reconstructions(self):
        """To be called by models whose outputs include reconstructions."""
        self._reconstruction_error = keras.metrics.Mean(
            name="reconstruction_error"
        )

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        cost = self._classification_loss(y[keys.LOGITS], y_pred[keys.LOGITS])
        self._cost.update_state(cost)
        if self._reconstruction_error is not None:
            error = sum(
                layers.reconstruction_loss(y[name], y_pred[name])
                for name in keys.RECONS_BY_TARGET[: self.num_targets]
            )
            self._reconstruction_error.update_state(error)
            cost = cost + error
        return self._mean_over_batch(cost, cost)

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        for metric in (self._accuracy, self._almost):
            metric.update_state(y[keys.LOGITS], y_pred[keys.LOGITS])
        return self.get_metrics_result()
