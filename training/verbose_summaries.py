"""Summaries of `verbose`: weights, outputs of layers, reconstructions."""

import keras
import numpy as np
import tensorflow as tf
from tensorboard.plugins.histogram.metadata import create_summary_metadata

from input_data import keys
from training.tf1_checkpoint import tf1_name

# Images in one `reconstruction` summary.
_NUM_IMAGES = 10


def write_layers(writer, model, images, step):
    """Writes statistics of each weight and of each layer's output."""
    activations = model.activations(images)
    with writer.open():
        for weight in model.trainable_weights:
            tag, values = tf1_name(weight), _to_numpy(weight)
            tf.summary.scalar(f"{tag}/mean", values.mean(), step)
            tf.summary.scalar(f"{tag}/stddev", values.std(), step)
            tf.summary.scalar(f"{tag}/min", values.min(), step)
            tf.summary.scalar(f"{tag}/max", values.max(), step)
            _write_histogram(f"{tag}/histogram", values, step)
        for name, tensor in activations.items():
            values = _to_numpy(tensor)
            _write_histogram(f"{name}/activation", values, step)
            tf.summary.scalar(f"{name}/sparsity", np.mean(values == 0), step)


def write_reconstructions(writer, model, x, y, step):
    """Writes input, target and reconstruction, one below the other.

    Images of two objects have a second column for the second object.
    """
    from visualization.drawing import to_rgb  # it imports Matplotlib

    images, outputs = x[keys.IMAGES], model(x)
    columns = [
        np.concatenate([*map(_to_numpy, (images, y[n], outputs[n]))], 1)
        for n in keys.RECONS_BY_TARGET
        if n in outputs
    ]
    if not columns:
        return
    both = np.concatenate(columns, axis=2)[:_NUM_IMAGES]
    pictures = np.stack([to_rgb(image) for image in both])
    with writer.open():
        tf.summary.image("reconstruction", pictures, step, _NUM_IMAGES)


def _write_histogram(tag, values, step):
    """Like tf.summary.histogram, which takes gigabytes for large weights."""
    # float64, as 30 edges do not fit between neighboring float32 values.
    finite = values[np.isfinite(values)].astype("float64")
    counts, edges = np.histogram(finite, bins=30)
    tf.summary.write(
        tag,
        np.stack([edges[:-1], edges[1:], counts], axis=1),
        step,
        create_summary_metadata(display_name=None, description=None),
    )


def _to_numpy(tensor):
    return keras.ops.convert_to_numpy(keras.ops.cast(tensor, "float32"))
