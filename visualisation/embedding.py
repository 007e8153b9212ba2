"""Class capsules for the TensorBoard projector."""

import io
import itertools
import json
import math

import matplotlib.image
import numpy as np

from visualisation.drawing import to_rgb

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


def make(trained, num_examples=1000):
    """Makes the files of the projector.

    A vector holds all class capsules of an example: capsules of different
    classes do not lie in one space.
    """
    examples = list(itertools.islice(trained.examples(), num_examples))
    images = np.stack([to_rgb(example.image) for example in examples])
    height, width = images.shape[1:3]
    vectors = np.stack([example.capsules.ravel() for example in examples])
    table, picture = io.BytesIO(), io.BytesIO()
    np.savetxt(table, vectors, fmt="%.6g", delimiter="\t")
    matplotlib.image.imsave(picture, sprite(images), format="png")
    lines = ["label\tprediction\tright"]
    for example in examples:
        labels, predictions = (
            trained.class_text(sorted(classes))
            for classes in (example.labels, example.predictions)
        )
        right = "yes" if example.is_right else "no"
        lines.append(f"{labels}\t{predictions}\t{right}")
    return {
        "capsules.tsv": table.getvalue(),
        "metadata.tsv": "".join(f"{line}\n" for line in lines),
        "sprite.png": picture.getvalue(),
        "projector_config.pbtxt": _CONFIG.format(
            name=json.dumps(f"class capsules: {trained.name}"),
            width=width,
            height=height,
        ),
    }


def sprite(images):
    """Images [N, H, W, 3] in a square, row by row, with black at the end."""
    count, height, width, _ = images.shape
    side = math.isqrt(count - 1) + 1
    padded = np.pad(images, [(0, side**2 - count), (0, 0), (0, 0), (0, 0)])
    rows = padded.reshape(side, side, height, width, 3)
    return rows.swapaxes(1, 2).reshape(side * height, side * width, 3)
