"""Images per second of the input pipelines, and of writing record files.

  python benchmarks/input_benchmark.py
  python benchmarks/input_benchmark.py --cores=2 --data_dir=MNIST_FOLDER

Without --data_dir it takes 60,000 images made of the embedded digits; data
sets of other sizes have random pixels. Rates are the best of --rounds blocks
of --seconds.
"""

import os
import pathlib
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

# First: it sets what TensorFlow reads when it is imported.
from benchmarks import command_line

# isort: split

import numpy as np
import tensorflow as tf

from input_data.datasets import (
    cifar10,
    digits,
    mnist,
    mnist_record_files,
    norb,
)
from input_data.generators import expansion, shifted_records
from input_data.images import (
    SINGLE_SHIFT,
    LabelledImages,
    make_pipeline,
)
from input_data.options import Options
from input_data.splits import Split
from input_data.images import StandardizedCrops

FLAGS = {
    "cores": 1,
    "data_dir": "",
    "seconds": 3.0,
    "rounds": 3,
    "records": 50000,
}
BATCH_SIZE = 128
NUM_IMAGES = 60000
# Of data sets whose files are not needed.
NUM_RANDOM = 10000
SHIFT = PAD = 4


def measure(flags):
    """One row for each pipeline and each way to write records."""
    # TensorFlow has not started its threads yet, as many as there are cores.
    cores = sorted(os.sched_getaffinity(0))[: flags.cores]
    os.sched_setaffinity(0, cores)
    data = _read(flags.data_dir)
    with tempfile.TemporaryDirectory() as folder:
        return list(_rows(flags, data, pathlib.Path(folder)))


def _rows(flags, data, folder):
    def best(work):
        return max(_rate(work, flags.seconds) for _ in range(flags.rounds))

    def row(name, rate):
        return {"what": name, "a second": rate}

    with tf.device("CPU:0"):  # also beside a GPU, as `registry.load` has it
        pipelines = list(_pipelines(data))
    for name, pipeline in pipelines:
        yield row(name, best(_batches(pipeline)))

    path = folder / "single.tfrecords"
    single = expansion.ShiftedDigits(data, shift=2, pad=0)
    count = min(6 * flags.records, single.num_records)
    yield row("writing single records", _written(single, path, count))
    records = mnist_record_files.single_records(path, Options())
    yield row("single records", best(_batches(records)))
    path.unlink()

    path = folder / "multi.tfrecords-00000-of-00001"
    pairs = expansion.DigitPairs(data, SHIFT, PAD, 1000, 0, Split.TRAIN)
    rate = max(
        _written(pairs, path, flags.records) for _ in range(flags.rounds)
    )
    yield row("writing pair records", rate)
    options = Options(data_dir=f"{folder}/multi.tfrecords@1", num_targets=2)
    records = mnist_record_files.PairRecords(options)
    yield row("pair records", best(_batches(records)))


def _read(data_dir):
    if data_dir:
        return mnist.read_mnist(data_dir, training=True)
    data = digits.read_split(Split.TRAIN)
    return data[np.arange(NUM_IMAGES) % len(data)]


def _pipelines(data):
    """Names and pipelines of images in memory."""

    def memory(**options):
        return make_pipeline(data, Options(**options), SINGLE_SHIFT)

    def random(*shape):
        count = (NUM_RANDOM, *shape)
        pixels = np.random.default_rng(0).integers(0, 256, count)
        labels = np.arange(len(pixels)) % 10
        return LabelledImages(pixels.astype(np.uint8), labels, 10)

    yield "shifted", memory()
    yield "shifted and distorted", memory(distort=True)
    yield "40x40, shifted by 6", memory(shift=6, pad=6)
    yield "MultiMNIST on the fly", memory(num_targets=2)
    for name, module, shape in (
        ("cifar10", cifar10, (32, 32, 3)),
        ("norb", norb, (48, 48, 2)),
    ):
        crop = module.CROP_SIZE, module.distort, 100
        yield name, StandardizedCrops(random(*shape), *crop)
    # SVHN, folders of images and tfds:NAME share this pipeline.
    yield "svhn, 32x32x3", make_pipeline(random(32, 32, 3), Options())
    yield "affnist, 40x40", make_pipeline(random(40, 40, 1), Options())


def _rate(work, seconds):
    """Examples per second; `work` does some and gives how many."""
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        count += work()
    return count / (time.perf_counter() - start)


def _batches(pipeline):
    """Work of `_rate`: a batch of training, after the first ones."""
    batches = iter(pipeline.training_batches(BATCH_SIZE, 0, 0, 2**40))
    for _ in range(10):
        next(batches)

    def work():
        next(batches)
        return BATCH_SIZE

    return work


def _written(contents, path, count):
    """Records per second of writing `count` records as mnist_shift does."""
    start = time.perf_counter()
    shifted_records.write_records(contents, 0, count, path)
    return count / (time.perf_counter() - start)


if __name__ == "__main__":
    command_line.run(measure, FLAGS, __doc__)
