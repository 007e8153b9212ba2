"""Runs several training steps in one call, as a call costs 1 ms of Python."""

import math

import keras

from layers.backends import is_on_cpu

# Limits of a call: steps; FLOPs, as signals are answered after it (in two
# seconds at 5 TFLOP/s); bytes of its images, of which several calls are ready.
_STEPS, _FLOPS, _BYTES = 50, 1e13, 2**26


def choose_steps(model, batch_size, num_devices, events):
    """Steps in one call: a divisor of all `events`, so that saves end a call.

    `events`: first step and intervals of saves, summaries and evaluations.
    One call makes 1 step with torch, on CPUs (XLA's convolutions are slow in
    loops), and on several devices with TensorFlow (Keras 3.15 fails there).
    """
    backend = keras.backend.backend()
    is_mirrored = backend == "tensorflow" and num_devices > 1
    if is_on_cpu() or backend == "torch" or is_mirrored:
        return 1
    pixels = batch_size * math.prod(model.network.input.shape[1:])
    size = 4 * pixels * (1 + model.num_targets)
    # The gradients take two products for each one of the network.
    flops = 6 * batch_size * (model.multiply_adds() or 10**9)
    most = int(min(_STEPS, _BYTES / size, _FLOPS / flops))
    common = math.gcd(*events)
    return next(n for n in range(max(most, 1), 0, -1) if common % n == 0)


def combine_steps(model, batches, steps):
    """Makes calls in `fit` take `steps` batches; returns those for `fit`."""
    if steps == 1 or keras.backend.backend() != "jax":
        model.steps_per_execution = steps
        return batches
    from training.jax_steps import scan_steps, stacked

    # Keras 3.15 would start each step by a call; 3.16 scans as well.
    model.train_step = scan_steps(model.train_step)
    return stacked(batches, steps)
