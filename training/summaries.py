"""TensorBoard event files, with the reference's tags."""

import tensorflow as tf


class SummaryWriter:
    """Writes scalars to event files of one directory.

    Args:
      directory: path; made with the first scalar.
    """

    def __init__(self, directory):
        self._writer = tf.summary.create_file_writer(str(directory))

    def scalars(self, values, step):
        """Writes a dict from tag to number, and flushes the file."""
        with self._writer.as_default():
            for tag, value in values.items():
                tf.summary.scalar(tag, value, step)
        self._writer.flush()


def training_scalars(logs, batch_size):
    """The reference's tags for the running means of `Classifier`.

    Args:
      logs: dict that `fit` reports.
      batch_size: int; the reference counts right predictions per batch.
    """
    scalars = {
        "batch_classification_cost": logs["batch_classification_cost"],
        "total_loss": logs["loss"],
        "accuracy": logs["accuracy"],
        "correct_prediction_batch": logs["accuracy"] * batch_size,
        "almost_correct_batch": logs["almost_accuracy"] * batch_size,
    }
    if "reconstruction_error" in logs:
        scalars["reconstruction_error"] = logs["reconstruction_error"]
    return scalars


def evaluation_scalars(score):
    """The reference's tags for a `Score`."""
    return {
        "correct_prediction": score.correct,
        "wrong_prediction": score.wrong,
        "almost_wrong_prediction": score.almost_wrong,
    }
