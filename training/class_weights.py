"""Weights of the classes in the training loss, see `Classifier`."""

import numpy as np

from common.errors import user_errors
from common.flags import require_known


def class_weights(text, pipeline):
    """The weights that --class_weight=`text` gives, float32 [classes].

    "balanced" is n / (k n_c), as in scikit-learn: n_c of n labels are of class
    c, and k classes have any. Classes without images or weights have weight 1.
    """
    if text == "balanced":
        counts = pipeline.class_counts()
        share = counts.sum() / max(np.count_nonzero(counts), 1)
        return np.float32(np.where(counts, share / np.maximum(counts, 1), 1))
    weights, names = {}, pipeline.spec.names
    with user_errors(f"--class_weight={text}"):
        for part in text.split(","):
            name, equals, number = map(str.strip, part.rpartition("="))
            if not equals:
                raise ValueError("expected balanced or class=weight,...")
            require_known("class of --class_weight", name, names)
            weight = float(number)
            if name in weights or not 1e-6 <= weight <= 1e6:
                raise ValueError("expected one weight per class, 1e-6 to 1e6")
            weights[name] = weight
    return np.float32([weights.get(name, 1) for name in names])
