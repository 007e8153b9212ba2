"""Old modules under their new names, until they are replaced."""

# ruff: noqa: F401
from checkpoints import (
    Checkpoint,
    DamagedError,
    Metadata,
    find_all,
    open,
    save,
)
from checkpoints import newest_sound as latest_valid
from checkpoints import open as open_checkpoint
from checkpoints import path_of as checkpoint_path
from checkpoints.architecture import Architecture
