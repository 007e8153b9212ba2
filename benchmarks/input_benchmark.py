"""Images per second of the digit pipelines, and of writing record files.

  python benchmarks/input_benchmark.py
  python benchmarks/input_benchmark.py --cores=2 --data_dir=MNIST_FOLDER

Without --data_dir it takes 60,000 images made of the embedded digits. Every
pipeline's rate is also given in units of a loop that shifts one 28x28 image at
a time in Python, whatever the pipeline does beyond that, so that machines can
be compared; writing MultiMNIST records is compared with a loop that pads,
rolls, merges, serialises and writes one pair at a time. Processes of their own
write some records and four times as many, and their peak memory is shown.
"""

import argparse
import multiprocessing
import os
import pathlib
import resource
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

BATCH_SIZE = 128
NUM_IMAGES = 60000
SHIFT = PAD = 4
SECONDS = 3.0
REPEATS = 3


def main():
    """Measures and prints, one line for each pipeline."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--data_dir", help="folder with MNIST's idx files")
    arguments = parser.parse_args()
    # Before TensorFlow starts its threads, as many as there are cores.
    cores = sorted(os.sched_getaffinity(0))[: arguments.cores]
    os.sched_setaffinity(0, cores)
    print(f"{len(cores)} cores, batches of {BATCH_SIZE}, best of {REPEATS}")
    with tempfile.TemporaryDirectory() as folder:
        _measure(arguments.data_dir, folder)


def _measure(data_dir, folder):
    from input_data import labelled_images
    from input_data.datasets import mnist_record_files
    from input_data.generators import expansion
    from input_data.registry import Options
    from input_data.splits import Split

    data = _read(data_dir)
    loop = _best(lambda: _single_loop_rate(data))
    print(f"shifted images, one by one in Python: {loop:10,.0f} images/s")

    def show(name, pipeline):
        rate = _best(lambda: _training_rate(pipeline))
        print(f"{name:36} {rate:10,.0f} images/s, {rate / loop:.1f} loops")

    def memory(**options):
        return labelled_images.make_pipeline(
            data, Options(**options), labelled_images.SINGLE_SHIFT
        )

    show("in memory, shifted:", memory())
    show("in memory, shifted and distorted:", memory(distort=True))
    show("in memory, 40x40, shifted by 6:", memory(shift=6, pad=6))
    show("MultiMNIST on the fly:", memory(num_targets=2))

    for name, pipeline in _other_pipelines():
        show(f"{name}, random pixels:", pipeline)

    single = pathlib.Path(folder) / "single.tfrecords"
    digits = expansion.ShiftedDigits(data, shift=2, pad=0)
    rate = _write(digits, single, 300000)
    print(f"{'writing single records:':36} {rate:10,.0f} images/s")
    show(
        "single records:",
        mnist_record_files.single_records(single, Options()),
    )
    single.unlink()

    prefix = pathlib.Path(folder) / "multi.tfrecords"
    pairs_file = prefix.with_name(f"{prefix.name}-00000-of-00001")
    pairs = expansion.DigitPairs(data, SHIFT, PAD, 1000, 0, Split.TRAIN)
    pair_loop = _best(lambda: _pair_loop_rate(data, pairs_file))
    print(f"writing pairs, one by one in Python:  {pair_loop:10,.0f} pairs/s")
    rate = _best(lambda: _write(pairs, pairs_file, 50000))
    print(
        f"{'writing pair records:':36} {rate:10,.0f} pairs/s, "
        f"{rate / pair_loop:.1f} times that"
    )
    few, many = (_peak_memory_of_writing(n) for n in (50000, 200000))
    print(
        f"peak memory of a process that writes 50,000 pairs: {few:.0f} MB, "
        f"200,000 pairs: {many:.0f} MB"
    )
    options = Options(data_dir=f"{prefix}@1", num_targets=2)
    show("pair records:", mnist_record_files.PairRecords(options))


def _read(data_dir):
    import numpy as np

    from input_data.datasets import digits, mnist
    from input_data.labelled_images import LabelledImages
    from input_data.splits import Split

    if data_dir is not None:
        return mnist.read_mnist(data_dir, training=True)
    data = digits.read_split(Split.TRAIN)
    places = np.arange(NUM_IMAGES) % len(data)
    return LabelledImages(
        data.images[places], data.labels[places], data.num_classes
    )


def _best(measure):
    return max(measure() for _ in range(REPEATS))


def _training_rate(pipeline):
    """Images per second of training batches, after the first ones."""
    batches = iter(pipeline.training_batches(BATCH_SIZE, 0, 0, 2**40))
    for _ in range(10):
        next(batches)
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < SECONDS:
        next(batches)
        count += BATCH_SIZE
    return count / (time.perf_counter() - start)


def _shifted(image, offset, shift):
    import numpy as np

    canvas = np.pad(image, shift)
    canvas = np.roll(canvas, offset, axis=(0, 1))
    return canvas[shift:-shift, shift:-shift]


def _single_loop_rate(data):
    """Images per second of a loop that shifts one image at a time."""
    import numpy as np

    generator = np.random.default_rng(0)
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < SECONDS:
        batch = []
        for place in generator.integers(len(data), size=BATCH_SIZE):
            offset = generator.integers(-2, 3, size=2)
            image = _shifted(data.images[place, ..., 0], offset, 2)
            batch.append(image.astype(np.float32) / 255)
        np.stack(batch)
        count += BATCH_SIZE
    return count / (time.perf_counter() - start)


def _pair_loop_rate(data, path):
    """Pairs per second of a loop that writes one at a time."""
    import numpy as np
    import tensorflow as tf

    def integer(value):
        return tf.train.Feature(
            int64_list=tf.train.Int64List(value=[int(value)])
        )

    def text(image):
        return tf.train.Feature(
            bytes_list=tf.train.BytesList(value=[image.tobytes()])
        )

    generator = np.random.default_rng(0)
    size = data.images.shape[1] + 2 * PAD
    start, count = time.perf_counter(), 0
    with tf.io.TFRecordWriter(str(path)) as writer:
        while time.perf_counter() - start < SECONDS:
            first = second = count % len(data)
            while data.labels[first] == data.labels[second]:
                second = generator.integers(len(data))
            images = [
                _shifted(
                    np.pad(data.images[place, ..., 0], PAD),
                    generator.integers(-SHIFT, SHIFT + 1, size=2),
                    SHIFT,
                )
                for place in (first, second)
            ]
            merged = np.minimum(images[0].astype(int) + images[1], 255)
            features = {
                "height": integer(size),
                "width": integer(size),
                "depth": integer(1),
                "label_1": integer(data.labels[first]),
                "label_2": integer(data.labels[second]),
                "image_raw_1": text(images[0]),
                "image_raw_2": text(images[1]),
                "merged_raw": text(merged.astype(np.uint8)),
            }
            example = tf.train.Example(
                features=tf.train.Features(feature=features)
            )
            writer.write(example.SerializeToString())
            count += 1
    return count / (time.perf_counter() - start)


def _write(contents, path, count):
    """Records per second of writing `count` records as mnist_shift does."""
    from input_data.generators import shifted_records

    start = time.perf_counter()
    shifted_records.write_records(contents, 0, count, path)
    return count / (time.perf_counter() - start)


def _other_pipelines():
    """The pipelines of other data sets, on images of their sizes."""
    import numpy as np

    from input_data.datasets import cifar10, norb
    from input_data.labelled_images import LabelledImages, make_pipeline
    from input_data.registry import Options
    from input_data.standardised_crops import StandardisedCrops

    def images(*shape):
        generator = np.random.default_rng(0)
        pixels = generator.integers(0, 256, (10000, *shape), dtype=np.uint8)
        return LabelledImages(pixels, np.arange(10000) % 10, 10)

    yield (
        "cifar10",
        StandardisedCrops(
            images(32, 32, 3), cifar10.CROP_SIZE, cifar10.distort, 100
        ),
    )
    yield (
        "norb",
        StandardisedCrops(images(48, 48, 2), norb.CROP_SIZE, norb.distort, 100),
    )
    # SVHN, folders of images and tfds:NAME share this pipeline.
    yield "svhn, 32x32x3", make_pipeline(images(32, 32, 3), Options())
    yield "affnist, 40x40", make_pipeline(images(40, 40, 1), Options())


def _peak_memory_of_writing(count):
    """The largest size, in MB, of a process that writes `count` pairs."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(_write_and_measure, (count,))


def _write_and_measure(count):
    from input_data.datasets import digits
    from input_data.generators import expansion
    from input_data.splits import Split

    data = digits.read_split(Split.TRAIN)
    pairs = expansion.DigitPairs(data, SHIFT, PAD, 1000, 0, Split.TRAIN)
    with tempfile.TemporaryDirectory() as folder:
        _write(pairs, pathlib.Path(folder) / "pairs.tfrecords", count)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
