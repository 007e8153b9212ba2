"""Tiny data sets for tests, written without the code that reads them."""

import gzip
import io
import os
import struct

import numpy as np
import scipy.io
import tensorflow as tf
import tensorflow_datasets as tfds
from PIL import Image

NUM_TRAIN, NUM_TEST = 15, 7
_COUNTS = {"train": NUM_TRAIN, "test": NUM_TEST}


def random_images(count, *shape, seed=0):
    """uint8 array [count, *shape], uniform in 0 to 255."""
    generator = np.random.default_rng(seed)
    return generator.integers(0, 256, (count, *shape), np.uint8)


def _flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def _blacken(path):
    """Other pixels, in an image file of the same size and time."""
    before = path.stat()
    with Image.open(path) as image:
        Image.new(image.mode, image.size).save(path)
    os.truncate(path, before.st_size)  # zeros at the end
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


# What may happen to a file.
DAMAGE = {
    "vanish": lambda path: path.unlink(),
    "cut": lambda path: os.truncate(path, path.stat().st_size // 2),
    "clear": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_bytes(b"no data\n" * 40),
    "flip": _flip,
    "blacken": _blacken,
    "write": lambda path: np.save(path, np.load(path) + np.uint8(1)),
}


def write_records(path, records):
    """Writes bytes objects as a TFRecord file; returns its path."""
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)
    return path


def cycling_labels(count, num_classes):
    """uint8 array [count]: every class in turn."""
    return (np.arange(count) % num_classes).astype(np.uint8)


def write_mnist(folder, num_train=NUM_TRAIN, num_test=NUM_TEST, size=28):
    """Writes the four files of MNIST, the images gzipped, the labels plain.

    Images are random, but their first pixel is the label. Returns a dict from
    "train" and "t10k" to (images, labels).
    """
    written = {}
    for prefix, count in (("train", num_train), ("t10k", num_test)):
        labels = cycling_labels(count, 10)
        images = random_images(count, size, size, seed=count)
        images[:, 0, 0] = labels
        content = gzip.compress(_idx(images), 1)
        (folder / f"{prefix}-images-idx3-ubyte.gz").write_bytes(content)
        content = _idx(labels)
        (folder / f"{prefix}-labels-idx1-ubyte").write_bytes(content)
        written[prefix] = (images, labels)
    return written


def _idx(array):
    shape = struct.pack(f">{array.ndim}I", *array.shape)
    return bytes([0, 0, 8, array.ndim]) + shape + array.tobytes()


def write_arrays(folder):
    """Writes the files of `--dataset=arrays`, with names of the classes."""
    for name, count in _COUNTS.items():
        np.save(folder / f"x_{name}", random_images(count, 20, 18, 2))
        np.save(folder / f"y_{name}", cycling_labels(count, 4))
    (folder / "class_names.txt").write_text("ant\nbee\ncat\ndog\n")


def cifar10_bytes(images, labels):
    """A binary batch of images [N, 32, 32, 3]."""
    planes = np.moveaxis(images, 3, 1)
    return b"".join(
        bytes([label]) + plane.tobytes()
        for label, plane in zip(labels, planes, strict=True)
    )


def example(**features):
    """A serialized `tf.train.Example` of integers, lists of ints and bytes."""
    message = tf.train.Example()
    for name, value in features.items():
        feature = message.features.feature[name]
        if isinstance(value, bytes):
            feature.bytes_list.value.append(value)
        else:
            feature.int64_list.value.extend(np.atleast_1d(value).tolist())
    return message.SerializeToString()


def norb_example(image, label, meta=(1, 2, 34, 5)):
    """The record of a stereo pair [2, 96, 96]."""
    size = {"height": 96, "width": 96, "depth": 2}
    pixels = image.tobytes()
    return example(**size, label=label, meta=list(meta), image_raw=pixels)


def mnist_example(labels, images):
    """The record of a digit, or of two digits and the merged image."""
    names = ["label", "image_raw"]
    if len(labels) == 2:
        names = ["label_1", "label_2"]
        names += ["image_raw_1", "image_raw_2", "merged_raw"]
    names += ["height", "width", "depth"]
    pixels = [image.tobytes() for image in images]
    values = (*labels, *pixels, *images[0].shape)
    return example(**dict(zip(names, values, strict=True)))


def write_norb(folder):
    """Writes the two record files."""
    for name, count in _COUNTS.items():
        path = folder / f"{name}duo.tfrecords"
        images = random_images(count, 2, 96, 96)
        labels = cycling_labels(count, 5).tolist()
        write_records(path, map(norb_example, images, labels))


def _mat_bytes(**variables):
    buffer = io.BytesIO()
    scipy.io.savemat(buffer, variables)
    return buffer.getvalue()


def svhn_bytes(images, labels):
    """A .mat file of images [N, 32, 32, 3] and labels of 1 to 10."""
    return _mat_bytes(X=np.moveaxis(images, 0, 3), y=labels[:, np.newaxis])


def affnist_bytes(images, labels):
    """A .mat file of images [N, 40, 40]."""
    columns = images.reshape(len(images), -1).T
    data = {"image": columns, "label_int": labels[np.newaxis]}
    return _mat_bytes(affNISTdata=data)


def _writer(counts, suffix, shape, encode, first=0):
    """A function that writes files of ten classes to a folder."""

    def write(folder):
        for name, count in counts.items():
            images = random_images(count, *shape)
            content = encode(images, cycling_labels(count, 10) + first)
            (folder / f"{name}{suffix}").write_bytes(content)

    return write


_BATCHES = {f"data_batch_{i}": NUM_TRAIN // 5 for i in range(1, 6)}
_BATCHES["test_batch"] = NUM_TEST
# The official names.
_AFFNIST = {"training_and_validation": NUM_TRAIN, "training": NUM_TRAIN - 3}
_AFFNIST |= {"validation": 3, "test": NUM_TEST}


def write_png(path, image):
    """Writes an image [H, W, C] as a PNG file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(tf.io.encode_png(image).numpy())


def write_images(folder):
    """Writes 24x20 color images of three classes to folders train and test."""
    for name, count in _COUNTS.items():
        for number, image in enumerate(random_images(count, 24, 20, 3)):
            path = folder / name / f"class{number % 3}" / f"{number}.png"
            write_png(path, image)


class TinyPhotos(tfds.core.GeneratorBasedBuilder):
    """A data set of TFDS without download: color images of one size."""

    VERSION = tfds.core.Version("1.0.0")
    SHAPE = (20, 24, 3)

    def _info(self):
        image = tfds.features.Image(shape=self.SHAPE)
        label = tfds.features.ClassLabel(num_classes=4)
        features = tfds.features.FeaturesDict({"image": image, "label": label})
        return self.dataset_info_from_configs(features=features)

    def _split_generators(self, dl_manager):
        return {k: self._generate_examples(n) for k, n in _COUNTS.items()}

    def _generate_examples(self, count):
        for number, image in enumerate(random_images(count, 20, 24, 3)):
            yield number, {"image": image, "label": number % 4}


class TinyAnySize(TinyPhotos):
    """A data set of TFDS: images of many sizes, with a train split alone."""

    SHAPE = (None, None, 1)

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples(NUM_TRAIN)}

    def _generate_examples(self, count):
        for number in range(count):
            (image,) = random_images(1, 10 + number, 30 - number, 1)
            yield number, {"image": image, "label": number % 4}


def prepare_tfds(folder, builder=TinyPhotos, **options):
    """Writes a data set of TFDS to a folder, as a download would."""
    builder(data_dir=folder, **options).download_and_prepare()


WRITERS = {
    "affnist": _writer(_AFFNIST, ".mat", (40, 40), affnist_bytes),
    "arrays": write_arrays,
    "cifar10": _writer(_BATCHES, ".bin", (32, 32, 3), cifar10_bytes),
    "fashion_mnist": write_mnist,
    "images": write_images,
    "mnist": write_mnist,
    "norb": write_norb,
    "svhn": _writer(_COUNTS, "_32x32.mat", (32, 32, 3), svhn_bytes, 1),
    "tfds:tiny_photos": prepare_tfds,
}
