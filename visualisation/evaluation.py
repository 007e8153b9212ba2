"""Temporary."""


def confusion_matrix_png(*a):
    """Nothing."""


def wrong_predictions_png(*a):
    """Nothing."""


def learning_curve_png(*a):
    """Nothing."""
    return b""
