"""A trained capsule network and its test examples."""

import dataclasses

import keras
import numpy as np

from common.errors import UserError
from input_data import features as keys
from input_data.pipeline import Pipeline
from visualisation.drawing import truncate

BATCH_SIZE = 100


def top_classes(logits, count):
    """The classes of the largest logits [..., O], the largest first."""
    return np.argsort(-logits, axis=-1, kind="stable")[..., :count]


@dataclasses.dataclass(frozen=True)
class Example:
    """One test image and the prediction for it.

    Attributes:
      image: float32 [H, W, C].
      targets: float32 [T, H, W, C], each of its T objects alone.
      labels: tuple of T ints, their classes.
      capsules: float32 [O, A], the class capsules.
      lengths: float32 [O], their lengths.
    """

    image: np.ndarray
    targets: np.ndarray
    labels: tuple
    capsules: np.ndarray
    lengths: np.ndarray

    @property
    def ranking(self):
        """All classes as ints, that of the longest capsule first."""
        return top_classes(self.lengths, len(self.lengths)).tolist()

    @property
    def predictions(self):
        """Tuple of the T classes of the longest capsules.

        A predicted label has the same index as in `labels`.
        """
        longest = self.ranking[: len(self.labels)]
        others = (label for label in longest if label not in self.labels)
        return tuple(
            label if label in longest else next(others) for label in self.labels
        )

    @property
    def is_right(self):
        """Whether the predicted classes are exactly the labels."""
        return set(self.predictions) == set(self.labels)


@dataclasses.dataclass(frozen=True)
class TrainedModel:
    """A trained capsule network and the data to show it on.

    Attributes:
      model: `models.classifier.Classifier` with class capsules.
      pipeline: `Pipeline`, or None without test images.
      name: string, network and data, for titles.
    """

    model: keras.Model
    pipeline: Pipeline | None
    name: str

    def __post_init__(self):
        if not self.model.has_class_capsules:
            raise UserError(f"{self.name} is not a capsule network")

    def class_text(self, classes):
        """Names of classes as text, such as "3 and 7"."""
        names = self.pipeline.spec.names
        return " and ".join(truncate(names[label]) for label in classes)

    def examples(self):
        """Generates an `Example` for every test image."""
        num_targets = self.pipeline.spec.num_targets
        for x, y in self.pipeline.evaluation_batches(BATCH_SIZE):
            outputs = self.model.predict_on_batch({keys.IMAGES: x[keys.IMAGES]})
            labels = [x[name] for name in keys.LABEL_BY_TARGET[:num_targets]]
            targets = [y[name] for name in keys.RECONS_BY_TARGET[:num_targets]]
            for index, image in enumerate(x[keys.IMAGES]):
                yield Example(
                    image=image,
                    targets=np.stack([t[index] for t in targets]),
                    labels=tuple(int(label[index]) for label in labels),
                    capsules=outputs[keys.CAPSULES][index],
                    lengths=outputs[keys.LOGITS][index],
                )

    def right_and_wrong(self, count):
        """The first right and the first wrong examples, `count` of each."""
        right, wrong = [], []
        for example in self.examples():
            kind = right if example.is_right else wrong
            if len(kind) < count:
                kind.append(example)
            if len(right) == len(wrong) == count:
                break
        return right, wrong

    def reconstruct(self, capsules, labels):
        """Images [N, H, W, C], each from one class capsule.

        Args:
          capsules: float [N, A].
          labels: ints [N], their classes.

        Raises:
          UserError: if the network has no decoder.
        """
        if self.model.decoder is None:
            raise UserError(f"{self.name} has no decoder")
        # The decoder masks the capsules of all other classes.
        num_classes = self.pipeline.spec.shape.num_classes
        capsules = np.repeat(capsules[:, None], num_classes, axis=1)
        images = self.model.decoder(
            capsules.astype("float32"), np.asarray(labels, "int32")
        )
        return keras.ops.convert_to_numpy(images)
