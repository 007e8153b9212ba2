"""A trained capsule network and its test examples: what figures show."""

import dataclasses

import keras
import numpy as np

from evaluation.counts import predicted_classes
from input_data import features as keys
from input_data.pipeline import Pipeline
from old.errors import UserError
from training.config import EVAL_BATCH_SIZE
from visualisation.drawing import shortened


@dataclasses.dataclass(frozen=True)
class Example:
    """One test image and what the network makes of it.

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
        return predicted_classes(self.lengths, len(self.lengths)).tolist()

    @property
    def predictions(self):
        """Tuple of the T classes of the longest capsules.

        A label that is predicted has the place that it has in `labels`.
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
      model: `models.classifier.Classifier` that shows capsules.
      pipeline: `Pipeline`, or None if there are no test images: only the
        model and `redraw` do without.
      name: string, network and data, for titles.
    """

    model: keras.Model
    pipeline: Pipeline | None
    name: str

    def __post_init__(self):
        if not self.model.has_class_capsules:
            raise UserError(
                f"{self.name} has no capsules to show: name a checkpoint of a "
                "capsule network"
            )

    @property
    def num_targets(self):
        """How many objects an image shows."""
        return self.pipeline.spec.num_targets

    def names_of(self, classes, shorten=shortened):
        """Classes in words, "3 and 7": by name where the data set has names.

        Args:
          classes: list of ints.
          shorten: function of a name.
        """
        names = self.pipeline.spec.names
        return " and ".join(shorten(names[label]) for label in classes)

    def verdict(self, example):
        """True and predicted classes, as lines above an `Example`'s column."""
        return {
            "true": self.names_of(example.labels),
            "predicted": self.names_of(example.predictions),
        }

    def examples(self):
        """Generates an `Example` for every test image, in their order."""
        for x, y in self.pipeline.evaluation_batches(EVAL_BATCH_SIZE):
            outputs = self.model.predict_on_batch({keys.IMAGES: x[keys.IMAGES]})
            labels = [x[name] for name in self._of(keys.LABEL_BY_TARGET)]
            targets = [y[name] for name in self._of(keys.RECONS_BY_TARGET)]
            for number, image in enumerate(x[keys.IMAGES]):
                yield Example(
                    image=image,
                    targets=np.stack([t[number] for t in targets]),
                    labels=tuple(int(label[number]) for label in labels),
                    capsules=outputs[keys.CAPSULES][number],
                    lengths=outputs[keys.LOGITS][number],
                )

    def right_and_wrong(self, count):
        """The first examples that are classified right, and wrong.

        Args:
          count: int, of each kind.

        Returns:
          Pair of lists of at most `count` examples: right ones, wrong ones.
        """
        found = {True: [], False: []}
        for example in self.examples():
            same = found[example.is_right]
            if len(same) < count:
                same.append(example)
            if all(len(kind) == count for kind in found.values()):
                break
        return found[True], found[False]

    def require_decoder(self):
        """Raises UserError if the network cannot redraw an image."""
        if self.model.decoder is None:
            why = "its model has none"
            if hasattr(self.model.hparams, "remake"):
                why = "it was trained with remake=false"
            raise UserError(
                f"{self.name} has no decoder to redraw images with: {why}. The "
                "figures routing and embedding need none."
            )

    def redraw(self, capsules, labels):
        """Images that the decoder draws, one from one class capsule.

        Args:
          capsules: float32 [N, O, A]; all but the labelled ones are masked.
          labels: ints [N], the classes to redraw.

        Returns:
          float32 array [N, H, W, C].
        """
        drawn = self.model.decoder(
            np.asarray(capsules, "float32"), np.asarray(labels, "int32")
        )
        return keras.ops.convert_to_numpy(drawn)

    def redraw_example(self, example, classes):
        """Redraws one example from each of several of its class capsules.

        Returns:
          float32 array [len(classes), H, W, C].
        """
        capsules = np.repeat(example.capsules[None], len(classes), axis=0)
        return self.redraw(capsules, classes)

    def _of(self, names_by_target):
        return names_by_target[: self.num_targets]
