"""Labeled images, and the pipeline of images of single objects."""

import dataclasses
import unicodedata

import numpy as np

from common.errors import UserError, user_errors
from input_data import keys, transforms
from input_data.augmentation import random_changes
from input_data.pairs import OverlappingPairs
from input_data.pipeline import Pipeline, Stream, random_offsets, step_seed
from input_data.stored import StoredRows, blocks, digest, is_large


@dataclasses.dataclass(frozen=True)
class LabeledImages:
    """Images with labels: one class, or any number of classes, per image."""

    images: np.ndarray | StoredRows  # uint8 [N, H, W, C]
    # Class indices [N], or k-hot [N, num_classes] for any number of classes.
    labels: np.ndarray | StoredRows
    num_classes: int
    class_names: tuple[str, ...] | None = None  # None if classes are numbers
    # `Spec.split_fingerprints`; all parts of the images share them.
    fingerprints: dict[str, str] = dataclasses.field(default_factory=dict)

    def __getitem__(self, part):
        """The images of a slice or at some indices, as `LabeledImages`."""
        images, labels = self.images[part], self.labels[part]
        return dataclasses.replace(self, images=images, labels=labels)

    def __len__(self):
        return len(self.images)


def labeled_images(path, images, labels, num_classes, class_names=None):
    """Creates `LabeledImages` from the arrays of a file.

    `images` are uint8 [N, H, W] or [N, H, W, C]; `labels` are class indices [N]
    or k-hot [N, num_classes]. Both can be `StoredRows`. Raises UserError if
    they do not suit each other, `num_classes` or `class_names`.
    """
    if not is_large(images):
        images = np.asarray(images)
    is_array = images.ndim in (3, 4) and 0 not in images.shape[1:]
    if images.dtype != np.uint8 or not is_array:
        raise UserError(
            f"{path} has {images.dtype} values of shape {images.shape}, "
            "expected uint8 [N, H, W] or [N, H, W, C]"
        )
    if images.ndim == 3:
        images = images[..., np.newaxis]
    if images.shape[1] < 5 <= images.shape[3]:
        raise UserError(
            f"{path} has images of shape {images.shape[1:]}, channels first; "
            "expected [N, H, W, C]: numpy.moveaxis(images, 1, -1)"
        )
    num_classes = int(to_integers(f"{path}: num_classes", num_classes))
    if class_names is not None:
        class_names = check_class_names(path, class_names, num_classes)
    if not is_large(labels):
        labels = to_integers(f"{path}: labels", labels)
    largest = num_classes - 1
    if labels.shape[1:] == (num_classes,) != (1,):
        largest = 1
    else:
        labels = np.reshape(labels, -1)
    is_wrong = any(b.min() < 0 or b.max() > largest for b in blocks(labels))
    if not len(images) or len(images) != len(labels) or is_wrong:
        raise UserError(
            f"{path} has {len(images)} images and {len(labels)} labels; "
            f"expected one from 0 to {num_classes - 1}, or {num_classes} that "
            "are 0 or 1, for each image"
        )
    return LabeledImages(images, labels, num_classes, class_names)


def to_integers(path, values):
    """An int64 array; UserError if a value is not an integer of 32 bits."""
    with user_errors(path), np.errstate(invalid="ignore"):
        values = np.asarray(values)
        integers = values.astype(np.int32)  # as batches have them
        if (wrong := values[integers != values]).size:
            raise ValueError(f"expected integers below 2**31, not {wrong[0]}")
    return integers.astype(np.int64)


def check_class_names(path, names, num_classes):
    """The names as a tuple; UserError if they do not suit the classes."""
    with user_errors(f"{path}: class names"):
        unique = {unicodedata.normalize("NFC", name) for name in names} - {""}
        # A terminal obeys control characters.
        has_control = "Cc" in map(unicodedata.category, "".join(names))
        if has_control or not len(unique) == len(names) == num_classes:
            raise ValueError(
                f"expected {num_classes} different printable names, not {names}"
            )
    return tuple(map(str, names))


def make_pipeline(data, config, **spec):
    """The pipeline of `LabeledImages`, with attributes `**spec` of `spec`."""
    if config.num_targets != 2:
        return SingleObjects(data, config, **spec)
    if data.labels.ndim > 1:
        raise UserError("--num_targets=2 needs images of one class each")
    return OverlappingPairs(data, config, **spec)


class SingleObjects(Pipeline):
    """Pipeline of images of single objects, with pixels in [0, 1].

    All images are padded. Training images are then shifted by row and column
    offsets, each uniform in [-shift, shift], and changed by `random_changes`.
    """

    def __init__(self, data, config, **spec):
        self._config = config
        self._shift, self._pad = config.shift, config.pad
        border = 2 * self._pad - transforms.CROP * config.distort
        size = [side + border for side in data.images.shape[1:3]]
        num_targets = 1 if data.labels.ndim == 1 else keys.SEVERAL_LABELS
        num_examples = min(config.eval_size, len(data))
        super().__init__(data, size, num_targets, num_examples, **spec)

    def training_batch(self, indices, step, seed):
        images, labels = self.take(indices)
        images = transforms.pad_images(images, self._pad)
        if self._shift:
            shift_seed = step_seed(seed, Stream.SHIFT, step)
            offsets = random_offsets(shift_seed, indices.shape[0], self._shift)
            images = transforms.shift_images(images, offsets, self._shift)
        images = random_changes(images, self._config, seed, step)
        images = transforms.unit_range(images)
        return self._batch(images, [images], [labels])

    def description(self):
        names = "augment", "crop_area", "distort", "flip", "shift", "pad"
        settings = {name: getattr(self._config, name) for name in names}
        images = self._images
        if isinstance(images, StoredRows):
            return f"{settings} {images.description()}"
        return f"{settings} {digest(np.asarray(images))}"

    def evaluation_batch(self, indices):
        images, labels = self.take(indices)
        images = transforms.pad_images(images, self._pad)
        images = transforms.central_crop(images, self._size)
        images = transforms.unit_range(images)
        return self._batch(images, [images], [labels])
