"""Where the time of a step goes, layer by layer, by TensorFlow's profiler.

  python benchmarks/profile_benchmark.py
  python benchmarks/profile_benchmark.py --inference --policy=mixed_bfloat16

The capsule model as it trains, or with --inference as it is evaluated. While
several operations run side by side each counts with its part of the time, so
that the rows add up to the step; what no operation explains is Python, the
data and waiting. TensorFlow only, operations on the CPU only.
"""

import collections
import pathlib
import re
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

# First: it sets what TensorFlow reads when it is imported.
from benchmarks import command_line, measuring

# isort: split

import keras
import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from benchmarks.networks import NETWORKS, examples
from devices.parallel import OneDevice

FLAGS = {
    "inference": False,
    "policy": "float32",
    "steps": 5,
    "rounds": 3,
    **command_line.SETTING,
}
# An operation's event is called by its name in the graph and its type.
_OPERATION = re.compile(r"(?:StatefulPartitionedCall/)?([^: ]+):\w+")
_GRADIENT = "gradient_tape/"
# Numbers at the end make the names of scopes differ.
_LAYER = re.compile(r"capsule_model(?:_\d+)*/(\w+?)(?:_\d+)*/")
_OPTIMISER = re.compile(r"adam(?:_\d+)*/")
_PICOSECONDS_PER_MS = 1e9


def measure(flags):
    """One row for each part of a step, that of the most time first."""
    if keras.backend.backend() != "tensorflow":
        sys.exit("profile_benchmark.py needs KERAS_BACKEND=tensorflow")
    setting = command_line.setting(flags)
    x, y = examples(setting, flags.steps)
    model, size = NETWORKS["ours"](setting), setting.batch_size
    predictor = OneDevice().predictor(model)

    def block():
        if flags.inference:
            measuring.evaluation_seconds(predictor, x, y, size)
        else:
            measuring.training_seconds(model, x, y, size)

    for _ in range(2):
        block()
    layers = {layer.name for layer in model.layers}
    total = collections.Counter()
    for _ in range(flags.rounds):
        total.update(by_part(_profiled(block), layers))
    steps = flags.steps * flags.rounds
    return [
        {
            "part": part,
            "ms/step": picoseconds / _PICOSECONDS_PER_MS / steps,
            "%": 100 * picoseconds / total.total(),
        }
        for part, picoseconds in total.most_common()
    ]


def _profiled(function):
    """The operations that a function runs: list of (name, start, end)."""
    with tempfile.TemporaryDirectory() as folder:
        with tf.profiler.experimental.Profile(folder):
            function()
        (path,) = pathlib.Path(folder).glob("**/*.xplane.pb")
        space = xplane_pb2.XSpace.FromString(path.read_bytes())
    operations = []
    for plane in space.planes:
        for line in plane.lines:
            for event in line.events:
                name = plane.event_metadata[event.metadata_id].name
                match = _OPERATION.fullmatch(name)
                if match:
                    start = line.timestamp_ns * 1000 + event.offset_ps
                    operations.append(
                        (match[1], start, start + event.duration_ps)
                    )
    return operations


def by_part(operations, layers):
    """The time from the first operation to the last, by what it was spent on.

    Args:
      operations: list of (name, start, end).
      layers: names of the model's layers.

    Returns:
      `Counter` from part to time, in the unit of the operations. Parts are
      layers, their gradients, "optimiser", "no operation" for the time in
      which none ran, and "rest": lengths, loss and metrics.
    """
    changes = sorted(
        (time, sign, _part(name, layers))
        for name, start, end in operations
        for time, sign in ((start, 1), (end, -1))
    )
    total = collections.Counter()
    running = collections.Counter()
    last = changes[0][0]
    for time, sign, part in changes:
        elapsed, last = time - last, time
        number = running.total()
        if number:
            for name, count in running.items():
                total[name] += elapsed * count / number
        else:
            total["no operation"] += elapsed
        running[part] += sign
    return +total


def _part(name, layers):
    layer = _LAYER.match(name.removeprefix(_GRADIENT))
    if layer and layer[1] in layers:
        return layer[1] + (" gradient" if name.startswith(_GRADIENT) else "")
    return "optimiser" if _OPTIMISER.match(name) else "rest"


if __name__ == "__main__":
    command_line.run(measure, FLAGS, __doc__)
