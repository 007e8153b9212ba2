"""Results of each class, and of an evaluation, for JSON."""

import dataclasses

import numpy as np

from input_data import keys


def precision_recall_f1(labels, predicted):
    """Precision, recall and F1 as scikit-learn defines them.

    Takes bool arrays [N, classes]. Returns [classes + 2, 3]: a row for each
    class, their mean (macro), and the values of all classes together (micro).
    """
    counts = np.stack([labels & predicted, predicted, labels]).sum(axis=1)

    def ratios(hits, predicted, labels):
        totals = predicted, labels, (predicted + labels) / 2
        return hits / np.maximum(totals, 1)  # of nothing it is 0

    by_class = ratios(*counts).T
    micro = ratios(*counts.sum(axis=1))
    return np.vstack([by_class, by_class.mean(axis=0), micro])


def ratios_by_class(predictions):
    """List of (name, dict), one for each row of `precision_recall_f1`."""
    names = *predictions.pipeline.spec.names, "macro", "micro"
    rows = precision_recall_f1(predictions.labels > 0, predictions.predicted)
    keys = "precision", "recall", "f1"
    rows = (dict(zip(keys, row, strict=True)) for row in rows.tolist())
    return list(zip(names, rows, strict=True))


def document(images, predictions):
    """The results of `Predictions` as a dict for JSON, for these `images`."""
    score, matrix = predictions.score, predictions.confusion_matrix
    checkpoint = predictions.checkpoint
    path = checkpoint.path if checkpoint else predictions.config.checkpoint
    settings = checkpoint.run_settings if checkpoint else {}
    *ratios, macro, micro = ratios_by_class(predictions)
    num_targets = predictions.pipeline.spec.num_targets
    has_any_number = num_targets == keys.SEVERAL_LABELS
    counts = predictions.labels.sum(0), np.diag(matrix), matrix.sum(0)
    by_class = zip(ratios, *counts, strict=False)  # "none" has no ratios
    return {
        "checkpoint": str(path),
        "step": checkpoint.step if checkpoint else None,
        "images": images,
        **dataclasses.asdict(score),
        "wrong": score.wrong,
        "wrong_percent": score.wrong_percent,
        "wrong_percent_per_object": (
            None if has_any_number else score.wrong_percent_per_object
        ),
        "wrong_examples": predictions.wrong_rows,
        "classes": [
            {
                "class": name,
                "labels": int(labels),
                "found": int(found),
                "predictions": float(predicted),
                **(ratio if has_any_number else {}),
            }
            for (name, ratio), labels, found, predicted in by_class
        ],
        **(dict([macro, micro]) if has_any_number else {}),
        "confusion_matrix": matrix.tolist(),
        "seconds": settings.get("seconds"),
        "images_per_second": predictions.images_per_second,
    }
