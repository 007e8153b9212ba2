"""Weights of the classes in the training loss, see `Classifier`."""

import inspect

import numpy as np

from common.errors import UserError, user_errors
from common.flags import require_known
from input_data import keys

# More images than this times those of the smallest class: a warning.
_UNEQUAL = 5


def class_weights(text, pipeline, row):
    """The weights that --class_weight=`text` gives, float32 [classes] or None.

    Raises UserError for a wrong `text`, or one that the loss of the
    `table.Model` `row` cannot use.
    """
    if text is None:
        return None
    spec = pipeline.spec
    if spec.num_targets == keys.SEVERAL_LABELS:
        try:
            inspect.signature(row.loss).bind(*range(4), present_weight=1)
        except TypeError:
            raise UserError(
                "--class_weight: the model's loss takes no present_weight"
            ) from None
    if text == "balanced":
        return balanced(pipeline.class_counts())
    weights = {}
    with user_errors(f"--class_weight={text}"):
        for part in text.split(","):
            name, equals, number = map(str.strip, part.rpartition("="))
            if not equals:
                raise ValueError("expected balanced or class=weight,...")
            require_known("class", name, spec.names)
            weight = float(number)
            if name in weights or not 1e-6 <= weight <= 1e6:
                raise ValueError("expected one weight, 1e-6 to 1e6, of a class")
            weights[name] = weight
    return np.float32([weights.get(name, 1) for name in spec.names])


def balanced(counts):
    """`class_weight="balanced"` of scikit-learn, float32 [classes].

    n / (k n_c) for a class with `counts` n_c of the n labels, where k classes
    have any. The weight of other classes, which scikit-learn lacks, is 1.
    """
    share = counts.sum() / max(np.count_nonzero(counts), 1)
    return np.where(counts, share / np.maximum(counts, 1), 1).astype("float32")


def warn_if_unequal(pipeline):
    """Warns if the classes have very unequal numbers of images.

    Classes without images, and labels that would have to be read, do not count.
    """
    if not pipeline.has_labels_in_memory:
        return
    counts, names = pipeline.class_counts(), pipeline.spec.names
    largest = counts.argmax()
    smallest = np.where(counts, counts, counts[largest]).argmin()
    if counts[largest] > _UNEQUAL * counts[smallest]:
        print(
            f"Warning: {counts[largest]} training images of {names[largest]}, "
            f"{counts[smallest]} of {names[smallest]}; --class_weight=balanced "
            "gives all classes the same weight"
        )
