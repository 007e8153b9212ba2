"""One run of a comparison, in a process of its own."""

import dataclasses
import math
import pathlib
import statistics
import tempfile
import time

from experiment import run as run_command
from old.errors import UserError
from old.startup import load_backend

_RATE = "images_per_second"
# Parts of a short training whose speeds are measured, the first one, in which
# the graph is built, for nothing.
_PARTS = 4


def train_and_evaluate(config):
    """Trains, or goes on with a training, and evaluates its checkpoints.

    Args:
      config: `Config` of the training.

    Returns:
      dict for JSON: machine; network, a dict of weights,
      weights_without_decoder and multiply_adds (None if a layer does not tell
      how often its weights are used); training_seconds,
      training_images_per_second (the median of the points of its curve),
      inference_images_per_second, peak_megabytes (None if the training had
      ended before), examples, wrong and points, a list of dicts of step,
      seconds and wrong.
    """
    load_backend()
    before = _newest_step(config)
    return run_command(config, lambda: _measured(config, before))


def _measured(config, before):
    """What `train_and_evaluate` gives, of a training that began at a step."""
    from devices.machine import machine, peak_megabytes

    peak = None
    if before < config.max_steps:
        peak = peak_megabytes()
    points, rate, score, network = _evaluate(config)
    curve = _rates(config)
    for point in points:
        point["seconds"] = _seconds_at(point["step"], curve, config.batch_size)
    return {
        "machine": machine(),
        "network": network,
        "training_seconds": points[-1]["seconds"],
        "training_images_per_second": statistics.median(curve.values()),
        "inference_images_per_second": rate,
        "peak_megabytes": peak,
        "examples": score.num_examples,
        "wrong": score.wrong,
        "points": points,
    }


def _newest_step(config):
    import checkpoints

    found = checkpoints.find_all(pathlib.Path(config.summary_dir) / "train")
    return found[-1][0] if found else 0


def _evaluate(config):
    """Each checkpoint that a training saves at regular steps, tested.

    Returns:
      Tuple of the points, a list of dicts of step and wrong; images/s of the
      last, when the graph was built; its `Score`; and what is said of the
      network.
    """
    import checkpoints
    from evaluation.evaluator import Evaluator

    evaluator = Evaluator(config)
    directory = pathlib.Path(config.summary_dir) / "train"
    points = []
    for step, path in checkpoints.find_all(directory):
        if step % config.save_step and step != config.max_steps:
            continue  # of an interruption
        opened = checkpoints.open(path)
        start = time.perf_counter()
        predictions = evaluator.predict(opened)
        seconds = time.perf_counter() - start
        result = predictions.score
        points.append({"step": step, "wrong": result.wrong})
    network = _describe(evaluator.model, opened.architecture.shape)
    return points, result.num_examples / seconds, result, network


def _describe(model, shape):
    from training.multiply_adds import multiply_adds

    def weights(part):
        return sum(math.prod(w.shape) for w in part.trainable_weights)

    decoder = 0 if model.decoder is None else weights(model.decoder)
    return {
        "weights": weights(model),
        "weights_without_decoder": weights(model) - decoder,
        "multiply_adds": multiply_adds(model, shape),
    }


def _rates(config):
    """Images/s of the training by step, each since the step before it.

    They are those of the event files, so that a training that was interrupted
    has them all; of steps that were done twice the last count.
    """
    from tensorboard.backend.event_processing.event_accumulator import (
        TENSORS,
        EventAccumulator,
    )
    from tensorboard.util.tensor_util import make_ndarray

    directory = str(pathlib.Path(config.summary_dir) / "train")
    events = EventAccumulator(directory, {TENSORS: 0})
    events.Reload()
    if _RATE not in events.Tags()[TENSORS]:
        raise UserError(
            f"{directory} does not tell how fast the training was: it was "
            "stopped before its last step alone. Remove it and train again"
        )
    rates = {
        event.step: float(make_ndarray(event.tensor_proto))
        for event in events.Tensors(_RATE)
    }
    return dict(sorted(rates.items()))


def _seconds_at(step, rates, batch_size):
    """Seconds of training until a step."""
    seconds, before, rate = 0.0, 0, None
    for point, rate in rates.items():
        if point > step:
            break
        seconds += (point - before) * batch_size / rate
        before = point
    return seconds + (step - before) * batch_size / rate


def measure_speed(config, steps):
    """Training steps per second, of a short training that leaves nothing.

    Args:
      config: `Config` of the training; its folder is not used.
      steps: int, how many to do; the first few are not counted, in which the
        graph is built.

    Returns:
      float, the median.
    """
    with tempfile.TemporaryDirectory() as folder:
        short = dataclasses.replace(
            config,
            summary_dir=folder,
            max_steps=steps,
            save_step=steps,
            summary_step=max(1, steps // _PARTS),
        )
        run_command(short)
        first, *rates = _rates(short).values()
    return statistics.median(rates or [first]) / config.batch_size
