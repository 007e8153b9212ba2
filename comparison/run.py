"""One run of a comparison, in a process of its own."""

import dataclasses
import math
import multiprocessing
import os
import pathlib
import statistics
import sys
import tempfile
import time

import experiment
from common.errors import Interrupted, UserError
from common.startup import load_backend

_RATE = "images_per_second"
# Parts of a short training whose speeds are measured, the first one, in which
# the graph is built, for nothing.
_PARTS = 4


def in_own_process(function, *arguments):
    """What a function of a module gives in a process that ends with it.

    If this process is interrupted the other one is asked to stop, by SIGTERM,
    and waited for.

    Raises:
      UserError: that of the function, or if the process ended without one.
    """
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_call, args=(there, function, arguments))
    process.start()
    there.close()
    try:
        value, error = here.recv()
    except EOFError:
        process.join()
        raise UserError(
            f"its process ended by itself, with exit code {process.exitcode}"
        ) from None
    except BaseException:
        process.terminate()
        raise
    finally:
        process.join()
    if error is not None:
        raise UserError(error)
    return value


def _call(connection, function, arguments):
    # Ctrl-C goes to the process that compares, which passes it on once.
    os.setsid()
    try:
        connection.send((function(*arguments), None))
    except UserError as error:
        connection.send((None, str(error)))
    except Interrupted as stop:
        print(stop)
        sys.exit(128 + stop.signal_number)


def train_and_evaluate(config):
    """Trains, or goes on with a training, and evaluates its checkpoints.

    Args:
      config: `Config` of the training.

    Returns:
      dict for JSON: machine; network, a dict of weights,
      weights_without_decoder and multiply_adds; training_seconds,
      training_images_per_second (the median of the points of its curve),
      inference_images_per_second, peak_megabytes (None if the training had
      ended before), examples, wrong and points, a list of dicts of step,
      seconds and wrong.
    """
    load_backend()
    from benchmarks import measuring

    before = _newest_step(config)
    experiment.run(config)
    peak = None
    if before < config.max_steps:
        peak = measuring.peak_megabytes()
    points, rate, score, model = _evaluate(config)
    curve = _rates(config)
    for point in points:
        point["seconds"] = _seconds_at(point["step"], curve, config.batch_size)
    return {
        "machine": measuring.machine(),
        "network": _describe(model),
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
      last, when the graph was built; its `Score`; and (model, its opened
      checkpoint).
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
    found = evaluator.model, opened
    return points, result.num_examples / seconds, result, found


def _describe(found):
    from comparison.multiply_adds import multiply_adds

    model, opened = found

    def weights(part):
        return sum(math.prod(w.shape) for w in part.trainable_weights)

    decoder = 0 if model.decoder is None else weights(model.decoder)
    return {
        "weights": weights(model),
        "weights_without_decoder": weights(model) - decoder,
        "multiply_adds": multiply_adds(model, opened.architecture.shape),
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
        experiment.run(short)
        first, *rates = _rates(short).values()
    return statistics.median(rates or [first]) / config.batch_size
