"""Class capsules for the TensorBoard projector."""

import io
import itertools
import json
import math

import numpy as np
from PIL import Image

from visualisation.drawing import to_rgb

# TensorBoard shows sprites of up to 8192 pixels on a side.
NUM_EXAMPLES = 1000
_CONFIG = """\
embeddings {{
  tensor_name: {name}
  tensor_path: "capsules.tsv"
  metadata_path: "metadata.tsv"
  sprite {{
    image_path: "sprite.png"
    single_image_dim: {width}
    single_image_dim: {height}
  }}
}}
"""


def make(trained, num_examples=NUM_EXAMPLES):
    """Makes the files of the projector.

    A vector holds all class capsules of an example: capsules of different
    classes do not lie in one space.

    Args:
      trained: `TrainedModel`.
      num_examples: int.

    Returns:
      Dict from file name to bytes or a string.
    """
    examples = list(itertools.islice(trained.examples(), num_examples))
    images = np.stack([to_rgb(example.image) for example in examples])
    height, width = images.shape[1:3]
    vectors = np.stack([example.capsules.ravel() for example in examples])
    table, picture = io.BytesIO(), io.BytesIO()
    np.savetxt(table, vectors, fmt="%.6g", delimiter="\t")
    pixels = np.rint(255 * sprite(images)).astype(np.uint8)
    Image.fromarray(pixels).save(picture, "PNG")
    return {
        "capsules.tsv": table.getvalue(),
        "metadata.tsv": metadata(trained, examples),
        "sprite.png": picture.getvalue(),
        "projector_config.pbtxt": _CONFIG.format(
            name=json.dumps(f"class capsules: {trained.name}"),
            width=width,
            height=height,
        ),
    }


def metadata(trained, examples):
    """A table of labels and predictions, one line per example."""
    lines = ["label\tprediction\tright"]
    for example in examples:
        labels, predictions = (
            " ".join(trained.class_text(sorted(classes), str).split())
            for classes in (example.labels, example.predictions)
        )
        right = "yes" if example.is_right else "no"
        lines.append(f"{labels}\t{predictions}\t{right}")
    return "\n".join(lines) + "\n"


def sprite(images):
    """Images [N, H, W, 3] in a square, row by row, with black at the end."""
    count, height, width, _ = images.shape
    side = math.isqrt(count - 1) + 1
    padded = np.pad(images, [(0, side**2 - count), (0, 0), (0, 0), (0, 0)])
    rows = padded.reshape(side, side, height, width, 3)
    return rows.swapaxes(1, 2).reshape(side * height, side * width, 3)
