"""A trained capsule network and its test examples."""

import dataclasses
import itertools
from collections.abc import Sequence

import keras
import numpy as np
from tqdm import tqdm

from common.errors import UserError
from config import EVAL_BATCH_SIZE
from input_data import keys
from input_data.pipeline import Pipeline
from layers.base_layers import positions_of, zeros_around
from visualization.drawing import truncate


@dataclasses.dataclass(frozen=True)
class Example:
    """One test image and the prediction for it."""

    image: np.ndarray  # float32 [H, W, C]
    targets: list  # T images [H, W, C], each object alone
    labels: list  # T ints, their classes
    capsules: np.ndarray  # float32 [O, A], of the classes
    lengths: np.ndarray  # float32 [O]

    @property
    def ranking(self):
        """All classes as ints, from the longest to the shortest capsule."""
        return keys.predicted_classes(self.lengths, len(self.lengths))

    @property
    def predictions(self):
        """The classes with the longest capsules, as many as in `labels`.

        Classes that are also labels are at the same positions as in `labels`.
        """
        longest = self.ranking[: len(self.labels)]
        others = (c for c in longest if c not in self.labels)
        return [c if c in longest else next(others) for c in self.labels]

    @property
    def is_right(self):
        return self.predictions == self.labels


@dataclasses.dataclass(frozen=True)
class TrainedModel:
    """A trained capsule network and the data to show it on."""

    model: keras.Model  # a `Classifier` with class capsules
    pipeline: Pipeline | None  # None without test images
    name: str  # network and data, for titles
    class_names: Sequence[str]

    def __post_init__(self):
        if not self.model.has_class_capsules:
            raise UserError(f"{self.name} is not a capsule network")

    def class_text(self, classes):
        """Names of classes as text, such as "3 and 7"."""
        return " and ".join(truncate(self.class_names[c]) for c in classes)

    def examples(self):
        num_targets = self.pipeline.spec.num_targets
        if num_targets == keys.SEVERAL_LABELS:
            raise UserError(
                f"{self.name}: images of several classes are not shown"
            )
        total = -(-self.pipeline.spec.num_examples // EVAL_BATCH_SIZE)
        batches = self.pipeline.evaluation_batches(EVAL_BATCH_SIZE)
        bar = {"total": total, "unit": "batch", "leave": False, "delay": 1}
        for x, y in tqdm(batches, "Test images", **bar):
            outputs = self.model.predict_on_batch({keys.IMAGES: x[keys.IMAGES]})
            labels = [x[name] for name in keys.LABEL_BY_TARGET[:num_targets]]
            targets = [y[name] for name in keys.RECONS_BY_TARGET[:num_targets]]
            for index, image in enumerate(x[keys.IMAGES]):
                yield Example(
                    image=image,
                    targets=[target[index] for target in targets],
                    labels=[int(label[index]) for label in labels],
                    capsules=outputs[keys.CAPSULES][index],
                    lengths=outputs[keys.LOGITS][index],
                )

    def first(self, count, is_right):
        """List of the first `count` examples with this value of `is_right`."""
        found = (e for e in self.examples() if e.is_right == is_right)
        return list(itertools.islice(found, count))

    def reconstruct(self, capsules, labels):
        """Decodes capsules [N, A] of classes `labels` to images [N, H, W, C].

        Raises UserError if the network has no decoder.
        """
        if self.model.decoder is None:
            raise UserError(f"{self.name} has no decoder")
        # The decoder masks the capsules of all other classes.
        rows = np.repeat(capsules[:, None], len(self.class_names), axis=1)
        labels = np.asarray(labels, "int32")
        images = self.model.decoder(rows.astype("float32"), labels)
        return keras.ops.convert_to_numpy(images)


def two_colors(first, second):
    """Merges images [H, W, C] to [H, W, 3]: `first` magenta, `second` green.

    With color blindness, the red and green of the paper's figure 5 look alike.
    """
    magenta, green = first.mean(axis=-1), second.mean(axis=-1)
    return np.stack([magenta, green, magenta], axis=-1)


def covered_part(model, size):
    """The part of an image that a map of couplings covers.

    The map's value for a position of capsules covers a square around the center
    of its receptive field, as wide as the distance between neighboring centers.
    `size` is the (height, width) of the image. Returns a dict with top, left,
    height and width in pixels.
    """
    part = []
    for length in size:
        first, step = 0.5, 1  # the center of the first position
        for kernel, strides, padding in model.receptive_field():
            before, _ = zeros_around(length, kernel, strides, padding)
            length = positions_of(length, kernel, strides, padding)
            first += step * ((kernel - 1) / 2 - before)
            step *= strides
        part.append((first - step / 2, step * length))
    (top, height), (left, width) = part
    return {"top": top, "left": left, "height": height, "width": width}
