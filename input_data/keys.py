"""The keys of batches: what data sets, models and training agree on.

A batch is a pair (x, y) of dicts. A target is an object in an image.

x, the input of a model:
  images        float32 [B, H, W, C], in [0, 1] unless the data set
                standardizes each image
  features      [B, h, w, C], in place of images, see `KeptFeatures`
  recons_label  int32 [B], the class of the first target; for images of any
                number of classes, int32 [B, classes], the k-hot labels
  spare_label   int32 [B], the class of the second target, if there are two
  step          int64 [B], only in training: the number of earlier steps

y, what the outputs of the model are compared with:
  labels        float32 [B, classes], the k-hot labels
  recons        float32 [B, H, W, C], the image of the first target alone
  spare_recons  float32 [B, H, W, C], the image of the second, if there are two
"""

import dataclasses

import numpy as np

IMAGES = "images"
FEATURES = "features"
RECONS_LABEL = "recons_label"
SPARE_LABEL = "spare_label"
STEP = "step"
LABELS = "labels"
LOGITS = "logits"  # in the outputs of a model: the scores of the classes
RECONS = "recons"
SPARE_RECONS = "spare_recons"
CAPSULES = "capsules"  # in the outputs of capsule models alone

# The `num_targets` of images of any number of classes, which are one target.
SEVERAL_LABELS = 0
# A class with a longer capsule is present; the loss has margins at 0.1 and 0.9.
PRESENT_LENGTH = 0.5
LABEL_BY_TARGET = (RECONS_LABEL, SPARE_LABEL)
RECONS_BY_TARGET = (RECONS, SPARE_RECONS)


def predicted(logits, num_targets):
    """Which classes are predicted for logits [..., classes]: a bool array.

    These are the `num_targets` classes with the largest logits; of equal ones,
    the lower index comes first. With `SEVERAL_LABELS`, these are all classes
    with a logit above `PRESENT_LENGTH`.
    """
    if num_targets == SEVERAL_LABELS:
        return logits > PRESENT_LENGTH
    order = np.argsort(-logits, axis=-1, kind="stable")[..., :num_targets]
    chosen = np.zeros(logits.shape, bool)
    np.put_along_axis(chosen, order, True, axis=-1)
    return chosen


def predicted_classes(logits, num_targets):
    """List of the predicted classes for logits [classes], likeliest first."""
    order = np.argsort(-logits, kind="stable")
    return order[predicted(logits, num_targets)[order]].tolist()


@dataclasses.dataclass(frozen=True)
class ImageShape:
    """The size and channels (`depth`) of images, and the number of classes."""

    height: int
    width: int
    depth: int
    num_classes: int


@dataclasses.dataclass(frozen=True)
class Spec:
    """Describes the batches of one split of a data set."""

    shape: ImageShape
    num_targets: int  # objects in each image: 1, 2 or `SEVERAL_LABELS`
    num_examples: int  # examples of an evaluation
    num_images: int  # images (or stored pairs) that training draws from
    class_names: tuple[str, ...] | None = None  # None if classes are numbers
    names: tuple[str, ...] = ()  # `class_names`, or the numbers as strings
    split_seed: int | None = None  # None if the seed does not change the split
    # "divided_for_test", "divided_for_validation" and "validation_images", for
    # checkpoints to record. While these digests are equal, no image has moved
    # between training and evaluation.
    split_fingerprints: dict[str, str] = dataclasses.field(default_factory=dict)
    # Settings of the stored images, for checkpoints to record.
    settings: dict[str, int] = dataclasses.field(default_factory=dict)
    # Where each image is in its file; None if it is in the same place.
    rows: tuple[int, ...] | None = None
    note: str | None = None  # advice to print with the evaluation command
