"""Old modules under their new names, until they are replaced."""

# ruff: noqa: F401
from evaluation.counts import (
    PRESENT_LENGTH,
    Score,
    confusion_matrix,
    predicted_classes,
    score,
    wrong_examples,
)
