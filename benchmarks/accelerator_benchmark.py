"""Measures the parts of a training step of the default network on a GPU.

  KERAS_BACKEND=jax python -m benchmarks.accelerator_benchmark --json=FILE

Needs only JAX and Keras, and under five minutes. "of peak" is the FLOP rate,
without products with zeros, relative to a bfloat16 matrix product. Gradients
that need a forward pass include it.
"""

import argparse
import json
import math
import os
import pathlib
import timeit
from functools import partial

import jax
import keras
import numpy as np
from jax import numpy as jnp

from input_data import keys
from models.optimizer import compile_model
from models.table import find_model
from testing.small_models import build_model
from training.steps_per_execution import scan_steps

SHAPE = keys.ImageShape(28, 28, 1, 10)
HPARAMS = find_model("capsule").hparams()
MATRIX = 8192  # rows and columns of the product
STEPS_PER_CALL = 10


def main(arguments=None):
    """Prints a row for each part; --json writes the rows."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch_size", type=int, default=128)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--json", default=os.devnull)
    flags = parser.parse_args(arguments)
    keras.config.set_dtype_policy("mixed_bfloat16")
    matrix = jax.random.normal(jax.random.key(0), (MATRIX, MATRIX), "bfloat16")
    peak = 2 * MATRIX**3 / _seconds(jnp.dot, [matrix, matrix], flags.steps)
    rows = []
    for part, seconds, flops in _measured(flags):
        speed = {"ms": 1000 * seconds, "images/s": flags.batch_size / seconds}
        row = {"part": part, **speed, "of peak": flops / seconds / peak}
        print(row)
        rows.append(row)
    document = {"device": jax.devices()[0].device_kind, "peak FLOP/s": peak}
    path = pathlib.Path(vars(flags).pop("json"))
    document |= {"jax": jax.__version__, **vars(flags), "rows": rows}
    path.write_text(json.dumps(document, indent=1))


def _seconds(function, arguments, calls):
    """The median time of a call; the device is waited for after all `calls`."""
    compiled = jax.jit(function)

    def block():
        for _ in range(calls):
            results = compiled(*arguments)
        jax.block_until_ready(results)

    jax.block_until_ready(compiled(*arguments))
    return float(np.median(timeit.repeat(block, number=1, repeat=3))) / calls


def _measured(flags):
    """Yields names of parts, seconds and FLOPs, all of a step."""
    model = build_model("capsule", SHAPE, 1, HPARAMS)
    compile_model(model, 1000)
    total = 0
    for name, function, arguments, flops in _parts(model, flags.batch_size):
        yield name, _seconds(function, arguments, flags.steps), flops
        if name != "first convolution, gradient of inputs":  # not in training
            total += flops
    for count in (1, STEPS_PER_CALL):
        batches = _batch(flags.batch_size, count)
        arguments = model._get_jax_state(*[True] * 4), batches
        train, calls = scan_steps(model.train_step), -(-flags.steps // count)
        seconds = _seconds(train, arguments, calls) / count
        yield f"step, {count} in a call", seconds, total


def _batch(*lead):
    images = jax.random.uniform(jax.random.key(0), (*lead, 28, 28, 1))
    labels = jnp.arange(math.prod(lead)).reshape(lead) % SHAPE.num_classes
    x = {keys.IMAGES: images, keys.RECONS_LABEL: labels, keys.STEP: labels}
    classes = jax.nn.one_hot(labels, SHAPE.num_classes)
    return x, {keys.LABELS: classes, keys.RECONS: images}


def _parts(model, batch_size):
    """Yields names, functions, their arguments and necessary FLOPs."""
    batch = _batch(batch_size)
    images, labels = batch[0][keys.IMAGES], batch[0][keys.RECONS_LABEL]
    features, primary, classes = model.activations(images).values()
    pixels = features[..., None, :]  # capsules of one type
    capsules = primary.reshape(batch_size, -1, primary.shape[-1])
    for name, layer, inputs, positions in [
        ("first convolution", model.conv1, [images], features.shape[1:3]),
        ("primary capsules", model.conv_capsule1, [pixels], primary.shape[1:3]),
        ("votes and routing", model.capsule2, [capsules], ()),
        ("decoder", model.decoder, [classes, labels], ()),
    ]:
        weights = [variable.value for variable in layer.variables]
        products = sum(w.size for w in weights if w.ndim > 1)
        flops = 2 * batch_size * math.prod(positions) * products

        def forward(weights, first, layer=layer, others=inputs[1:]):
            return layer.stateless_call(weights, [], first, *others)[0]

        def gradient(number, cotangent, *arguments, forward=forward):
            return jax.vjp(forward, *arguments)[1](cotangent)[number]

        arguments = weights, inputs[0]
        yield f"{name}, forward", forward, arguments, flops
        arguments = forward(*arguments), *arguments
        for number, of in enumerate(("weights", "inputs")):
            function = partial(gradient, number)
            yield f"{name}, gradient of {of}", function, arguments, flops
    values, _, state, _ = model._get_jax_state(*[True] * 4)
    update = model.optimizer.stateless_apply
    yield "optimizer", update, (state, values, values), 0
    batch = jax.tree.map(np.asarray, batch)
    yield "batch to the device", lambda batch: batch, [batch], 0


if __name__ == "__main__":
    main()
