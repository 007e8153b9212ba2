"""Models by the name that `--model` takes.

This file imports none of them, so that flags are parsed without TensorFlow.
"""

import importlib

from input_data.features import LARGEST_SIDE
from old.errors import UserError
from old.fields import require_known

# name: (module, class); a new model is one line here, its file and its test.
MODELS = {
    "baseline": ("models.baseline", "BaselineModel"),
    "capsule": ("models.capsule", "CapsuleModel"),
    "pooling": ("models.pooling", "PoolingModel"),
    "shared_capsule": ("models.shared_capsule", "SharedCapsuleModel"),
    "efficient_capsule": ("models.efficient_capsule", "EfficientCapsuleModel"),
    "matrix_capsule": ("models.matrix_capsule", "MatrixCapsuleModel"),
}
# In float32, with its gradient and Adam's moments, 32 GB.
_MOST_WEIGHTS = 2 * 10**9


def model_class(name: str):
    """The class of a model, a `classifier.Classifier`.

    Raises:
      UserError: for an unknown name.
    """
    require_known("model", name, sorted(MODELS))
    module, class_name = MODELS[name]
    return getattr(importlib.import_module(module), class_name)


def build_model(name, shape, num_targets, hparams, seed=0):
    """Creates a model with all its weights.

    Seeds the global generators of Python, NumPy and the backend, from which
    Keras draws the weights; a model that needs it has the whole process
    compute in full float32, see `use_full_float32`.

    Args:
      name: string, a key of `MODELS`.
      shape: `features.ImageShape`, the images and number of classes.
      num_targets: int, how many objects an image shows.
      hparams: the model's hyper-parameters.
      seed: int, of the initial weights.

    Returns:
      A built `keras.Model`.

    Raises:
      UserError: for an unknown name, images too small for the network, or a
        network of too many weights.
    """
    cls = model_class(name)
    smallest = cls.smallest_image(hparams)
    if min(shape.height, shape.width) < smallest:
        padding = getattr(hparams, "padding", None)
        with_padding = f" with padding={padding}" if padding else ""
        raise UserError(
            f"images of {shape.height}x{shape.width} are too small for model "
            f"{name}{with_padding}: the smallest size that works is "
            f"{smallest}x{smallest}"
        )
    _require_sane_size(cls, name, shape, hparams)
    import keras

    from layers.utils import use_full_float32

    if cls.full_float32:
        use_full_float32()
    keras.utils.set_random_seed(seed)
    model = cls(shape, num_targets, hparams, name=name)
    model.create_weights(shape)
    return model


def _require_sane_size(cls, name, shape, hparams):
    """Refuses too large images or too many weights before any is made."""
    if max(shape.height, shape.width) > LARGEST_SIDE:
        raise UserError(
            f"images of {shape.height}x{shape.width} are too large: a network "
            f"takes at most {LARGEST_SIDE:,} pixels in each direction"
        )
    count = cls.num_weights(shape, hparams)
    if count > _MOST_WEIGHTS:
        raise UserError(
            f"model {name} with these hyper-parameters and images of "
            f"{shape.height}x{shape.width} would have {count:,} weights; at "
            f"most {_MOST_WEIGHTS:,} are possible"
        )
