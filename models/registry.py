"""Finds and builds models by the names that `--model` takes.

This file imports no model, so that flags are parsed without TensorFlow.
"""

import bisect
import concurrent.futures
import dataclasses
import functools
import math

from common.errors import UserError
from common.flags import import_named, require_known

# The name, which is also that of the file, and the class.
MODELS = {
    "baseline": "BaselineModel",
    "capsule": "CapsuleModel",
    "pooling": "PoolingModel",
    "shared_capsule": "SharedCapsuleModel",
    "deepcaps": "DeepCapsModel",
    "efficient_capsule": "EfficientCapsuleModel",
    "homogeneous_capsule": "HomogeneousCapsuleModel",
    "inverted_attention": "AttentionModel",
    "matrix_capsule": "MatrixCapsuleModel",
    "photo_capsule": "PhotoCapsuleModel",
    "vb_capsule": "VBCapsuleModel",
    "self_routing": "SelfRoutingModel",
}
# Its weights are downloaded, so that compare.py trains it only where named.
PHOTO_MODEL = "photo_capsule"


def model_class(name):
    """The subclass of `classifier.Classifier` that a name stands for.

    A name is a key of `MODELS` or MODULE:CLASS. MODULE is outside this project,
    in the working directory or on PYTHONPATH. Raises UserError for other names.
    """
    if not is_external(name):
        require_known("model", name, sorted(MODELS))
        name = f"models.{name}:{MODELS[name]}"
    found = import_named("--model", name)
    from models.classifier import Classifier

    if not (isinstance(found, type) and issubclass(found, Classifier)):
        raise UserError(
            f"--model={name} is no subclass of models.classifier.Classifier"
        )
    return found


def is_external(name):
    """Whether a name has the form MODULE:CLASS."""
    return ":" in (name or "")


def _create(name, shape, num_targets, hparams):
    # TensorFlow allows no colon in names.
    label = name.rpartition(":")[2]
    model = model_class(name)(shape, num_targets, hparams, name=label)
    model.create_weights(shape)
    return model


@functools.lru_cache(maxsize=1)
def weights_without_values(*arguments):
    """The `weights` of the model that `build_model` would create."""
    import keras

    def create():
        with keras.StatelessScope(initialize_variables=False):
            return _create(*arguments).weights

    # A thread has its own names, and forgets the variables.
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        return executor.submit(create).result()


def _smallest_image(name, shape, *arguments):
    """The smallest side of images, up to 128, that a network takes, or None."""

    def fits(side):
        square = dataclasses.replace(shape, height=side, width=side)
        try:
            return bool(weights_without_values(name, square, *arguments))
        except ValueError:
            return False

    side = bisect.bisect_left(range(1, 129), True, key=fits) + 1
    return side if side <= 128 else None


def build_model(name, shape, num_targets, hparams, seed=0, copies=2):
    """Creates a model with all its weights; see `classifier.Classifier`.

    Seeds the global random generators of Python, NumPy and the backend, so that
    Keras draws the same weights in all processes of a cluster. Raises UserError
    if the name is unknown, the images are too small for the network, or the
    memory is too small for `copies` copies of the weights (`MODELS` only).
    """
    import keras
    import psutil

    arguments = name, shape, num_targets, hparams
    try:
        weights = (
            [] if is_external(name) else weights_without_values(*arguments)
        )
        needed = 4 * copies * sum(math.prod(w.shape) for w in weights)
        if needed > (memory := psutil.virtual_memory().total):
            raise UserError(
                f"model {name} needs {needed / 1e9:,.0f} GB for {copies} "
                "copies of its weights; this machine has "
                f"{memory / 1e9:,.0f} GB"
            )
        keras.utils.set_random_seed(seed)
        return _create(*arguments)
    except ValueError:
        smallest = _smallest_image(*arguments)
        if smallest is None or min(shape.height, shape.width) >= smallest:
            raise
        raise UserError(
            f"images of {shape.height}x{shape.width} are too small for model "
            f"{name}: the smallest size is {smallest}x{smallest}"
        ) from None
