"""Reads event files as TensorBoard does: for tests only."""

import tensorflow as tf
from tensorboard.backend.event_processing import event_accumulator as tb


def events_of(folder):
    """TensorBoard's `EventAccumulator` of all events of a folder."""
    events = tb.EventAccumulator(str(folder), size_guidance={"tensors": 0})
    return events.Reload()


def scalars(folder):
    """Dict from tag to dict from step to value."""
    events = events_of(folder)
    return {
        tag: {
            event.step: float(tf.make_ndarray(event.tensor_proto))
            for event in events.Tensors(tag)
        }
        for tag in events.Tags()["tensors"]
        if events.SummaryMetadata(tag).plugin_data.plugin_name == "scalars"
    }
