"""Start-up of commands, and what all parts share: errors, files, flags."""

import importlib
import os
import pathlib
import subprocess

from absl import logging

from common.errors import user_errors


def load_backend():
    """Imports Keras, with channels last, and TensorFlow; call it before others.

    Raises UserError if the chosen backend is not installed.
    """
    # TensorFlow reports processor features, missing GPUs and exports.
    logging.set_verbosity(logging.WARNING)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # TensorFlow disables it without AVX-512, where it halves a step's time.
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    # While it is imported, its C++ code writes lines at any log level.
    stderr = os.dup(2)
    with open(os.devnull, "w") as null:
        os.dup2(null.fileno(), 2)
    try:
        with user_errors("the backend of Keras"):
            keras = importlib.import_module("keras")
            importlib.import_module("tensorflow")
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
    keras.config.set_image_data_format("channels_last")


def commit():
    """The Git hash, then "+" if tracked files changed; None outside a clone."""
    command = "git --git-dir=.git describe --always --abbrev=40 --dirty=+"
    try:
        return subprocess.check_output(
            [*command.split(), "--exclude=*"],
            cwd=pathlib.Path(__file__).parents[1],
            stderr=subprocess.DEVNULL,
            text=True,
        ).strip()
    except (OSError, subprocess.CalledProcessError):
        return None
