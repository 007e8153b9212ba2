"""To be imported first by a command: loads Keras quietly, or ends.

Where the backend that KERAS_BACKEND names is not installed, the program ends
with one line that says so.
"""

import os
import pathlib
import sys

# TensorFlow's start-up notes would bury the first lines of output.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

try:
    import keras  # noqa: F401 - loads the backend
except (ImportError, ValueError) as error:
    sys.exit(
        f"{pathlib.Path(sys.argv[0]).name}: KERAS_BACKEND="
        f"{os.environ.get('KERAS_BACKEND')} cannot be used: {error}"
    )
