"""Class capsules for the TensorBoard projector."""

import io
import itertools
import math

import numpy as np
import tensorflow as tf
from google.protobuf import text_format
from tensorboard.plugins import projector

from old.errors import UserError
from visualisation.drawing import to_rgb

NUM_EXAMPLES = 1000
TENSORS_FILE = "capsules.tsv"
METADATA_FILE = "metadata.tsv"
SPRITE_FILE = "sprite.png"
CONFIG_FILE = "projector_config.pbtxt"
# Pixels on a side of the largest sprite that TensorBoard shows.
_LARGEST_SPRITE = 8192


def vectors(examples):
    """All class capsules of each example, one after the other.

    All of them, because the atoms of different classes mean different things:
    the capsules of the predicted classes alone would not lie in one space.

    Returns:
      float32 array [N, O * A].
    """
    return np.stack([example.capsules.ravel() for example in examples])


def metadata(subject, examples):
    """Text with a header and a line for each example: label, prediction."""
    lines = ["label\tprediction\tright"]
    for example in examples:
        labels, predictions = (
            # Tabs are between the columns.
            " ".join(subject.names_of(sorted(classes), str).split())
            for classes in (example.labels, example.predictions)
        )
        right = "yes" if example.is_right else "no"
        lines.append(f"{labels}\t{predictions}\t{right}")
    return "\n".join(lines) + "\n"


def sprite(images):
    """Images in a square, row by row, as the projector wants them.

    Args:
      images: list of N RGB images [H, W, 3] of one size.

    Returns:
      Array [side * H, side * W, 3] of their type, with side = ceil(sqrt(N));
      places that are left are black.

    Raises:
      UserError: if it is larger than TensorBoard shows.
    """
    height, width, _ = images[0].shape
    side = math.isqrt(len(images) - 1) + 1
    if side * max(height, width) > _LARGEST_SPRITE:
        largest = (_LARGEST_SPRITE // max(height, width)) ** 2
        raise UserError(
            f"TensorBoard's projector shows at most {largest} images of "
            f"{height}x{width}: --num_examples={len(images)} is too much"
        )
    places = np.zeros((side * side, height, width, 3), images[0].dtype)
    places[: len(images)] = images
    rows = places.reshape(side, side, height, width, 3)
    return rows.swapaxes(1, 2).reshape(side * height, side * width, 3)


def make(subject, num_examples=NUM_EXAMPLES):
    """The projector's files: vectors, labels, images and what is what.

    Args:
      subject: `TrainedModel`.
      num_examples: int.

    Returns:
      Dict from file name to the bytes of the file.

    Raises:
      UserError: if the sprite would be too large.
    """
    examples = list(itertools.islice(subject.examples(), num_examples))
    images = [
        np.rint(255 * to_rgb(example.image)).astype(np.uint8)
        for example in examples
    ]
    height, width, _ = images[0].shape
    pixels = sprite(images)
    table = io.BytesIO()
    np.savetxt(table, vectors(examples), fmt="%.6g", delimiter="\t")
    return {
        TENSORS_FILE: table.getvalue(),
        METADATA_FILE: metadata(subject, examples).encode(),
        SPRITE_FILE: tf.io.encode_png(pixels).numpy(),
        CONFIG_FILE: _config(subject.name, height, width).encode(),
    }


def _config(name, height, width):
    config = projector.ProjectorConfig()
    embedding = config.embeddings.add()
    embedding.tensor_name = f"class capsules: {name}"
    embedding.tensor_path = TENSORS_FILE
    embedding.metadata_path = METADATA_FILE
    embedding.sprite.image_path = SPRITE_FILE
    embedding.sprite.single_image_dim.extend([width, height])
    return text_format.MessageToString(config)
