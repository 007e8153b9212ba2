"""Converts TF1 checkpoints: `python -m training.tf1_checkpoint --help`."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from checkpoints.tf1.convert import main

if __name__ == "__main__":
    main()
