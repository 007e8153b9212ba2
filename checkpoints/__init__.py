"""Checkpoints, ours and TF1's: written whole, opened, verified."""

from checkpoints.checkpoint import (
    Checkpoint,
    DamagedError,
    Metadata,
    exists,
    find_tf1,
    newest,
    newest_sound,
    require_existing,
    save,
)
from checkpoints.checkpoint import open_checkpoint as open
from checkpoints.folder import find_all, path_of, remove_partial

__all__ = [
    "Checkpoint",
    "DamagedError",
    "Metadata",
    "exists",
    "find_all",
    "find_tf1",
    "newest",
    "newest_sound",
    "open",
    "path_of",
    "remove_partial",
    "require_existing",
    "save",
]
