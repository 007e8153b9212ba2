"""Loads Keras and its backend quietly, once the flags are parsed."""

import os

from common.errors import UserError


def load_backend():
    """Imports Keras, before anything that imports TensorFlow.

    Raises:
      UserError: if the backend that KERAS_BACKEND names is not installed.
    """
    # TensorFlow's start-up notes would bury the first lines of output.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    try:
        import keras  # noqa: F401 - loads the backend
    except (ImportError, ValueError) as error:
        raise UserError(
            f"KERAS_BACKEND={os.environ.get('KERAS_BACKEND')} cannot be "
            f"used: {error}"
        ) from None
