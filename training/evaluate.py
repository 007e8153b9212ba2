"""Old modules under their new names, until they are replaced."""

# ruff: noqa: F401
from evaluation.evaluator import Evaluator, Predictions
from evaluation.jobs import (
    evaluate_continuously,
    evaluate_ensemble,
    evaluate_once,
)
