"""Loads Keras and its backend, and names the version of this program."""

import os
import pathlib
import subprocess

from common.errors import UserError

_BACKENDS = ("jax", "tensorflow", "torch")


def load_backend():
    """Imports Keras before anything that imports TensorFlow.

    Raises:
      UserError: if the chosen backend is not installed or not supported.
    """
    # TensorFlow reports processor features and missing GPUs at start-up.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # Without AVX-512 TensorFlow disables oneDNN, which halves the time of a
    # training step there.
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    try:
        import keras

        backend = keras.backend.backend()
    except (ImportError, ValueError) as error:
        raise UserError(f"Keras cannot load its backend: {error}") from None
    if backend not in _BACKENDS:
        raise UserError(
            f"KERAS_BACKEND={backend} is not supported; use one of "
            f"{', '.join(_BACKENDS)}"
        )


def commit():
    """The commit of this program, with + if files differ; None if unknown."""
    root = pathlib.Path(__file__).parents[1]

    def git(*arguments):
        return subprocess.run(
            ["git", *arguments],
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()

    try:
        if pathlib.Path(git("rev-parse", "--show-toplevel")) != root:
            return None  # this program lies inside another repository
        changed = git("status", "--porcelain", "--untracked-files=no")
        return git("rev-parse", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return None
