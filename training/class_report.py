"""Results of each class, and of an evaluation, for JSON."""

import dataclasses

import numpy as np

from input_data import keys

_ROW = "{class:{width}}  {labels:6}  {recall:.4f}  {precision:9.4f}  {f1:.4f}"


def precision_recall_f1(labels, predicted, is_multilabel):
    """Precision, recall and F1 as scikit-learn defines them.

    Takes bool arrays [N, classes]. Returns [classes + 2, 3]: a row for each
    class, their mean (macro), and the values of all classes together (micro).
    Without `is_multilabel`, classes that never occur do not count in the mean.
    """
    counts = np.stack([labels & predicted, predicted, labels]).sum(axis=1)

    def ratios(hits, predicted, labels):
        totals = predicted, labels, (predicted + labels) / 2
        return hits / np.maximum(totals, 1)  # of nothing it is 0

    by_class = ratios(*counts).T
    micro = ratios(*counts.sum(axis=1))
    macro = by_class[counts.any(axis=0) | is_multilabel].mean(axis=0)
    return np.vstack([by_class, macro, micro])


def document(images, predictions):
    """The results of `Predictions` as a dict for JSON, for these `images`."""
    score, matrix = predictions.score, predictions.confusion_matrix
    checkpoint = predictions.checkpoint
    path = checkpoint.path if checkpoint else predictions.config.checkpoint
    settings = checkpoint.run_settings if checkpoint else {}
    spec = predictions.pipeline.spec
    has_any_number = spec.num_targets == keys.SEVERAL_LABELS
    found = predictions.labels > 0, predictions.predicted
    rows = precision_recall_f1(*found, is_multilabel=spec.num_targets != 1)
    names = "precision", "recall", "f1"
    *ratios, macro, micro = (
        dict(zip(names, row, strict=True)) for row in rows.tolist()
    )
    counts = predictions.labels.sum(0), np.diag(matrix), matrix.sum(0)
    by_class = zip(spec.names, ratios, *counts, strict=False)  # no "none"
    classes = [
        {"class": name, "labels": int(labels), "found": int(found)}
        | {"predictions": float(predicted), **ratio}
        for name, ratio, labels, found, predicted in by_class
    ]
    recalls = [row["recall"] for row in classes if row["labels"]]
    # With several labels, a network that predicts all of them would have 0.
    errors = [] if has_any_number else [100.0 * (1.0 - r) for r in recalls]
    return {
        "checkpoint": str(path),
        "step": checkpoint.step if checkpoint else None,
        "images": images,
        **dataclasses.asdict(score),
        "wrong": score.wrong,
        "wrong_percent": score.wrong_percent,
        "wrong_percent_interval": score.wrong_percent_interval,
        "wrong_percent_per_object": (
            None if has_any_number else score.wrong_percent_per_object
        ),
        "balanced_error_percent": sum(errors) / len(errors) if errors else None,
        "wrong_examples": predictions.wrong_rows,
        "classes": classes,
        "macro": macro,
        **({"micro": micro} if has_any_number else {}),
        "confusion_matrix": matrix.tolist(),
        "seconds": settings.get("seconds"),
        "images_per_second": predictions.images_per_second,
    }


def lines(found, has_table):
    """Lines of text about a `document`, with a table of up to 20 classes."""
    low, high = found["wrong_percent_interval"]
    yield f"95% confidence interval of the error: {low:.2f}% to {high:.2f}%"
    if (balanced := found["balanced_error_percent"]) is not None:
        yield f"balanced error: {balanced:.2f}%"
    if has_table and len(found["classes"]) > 20:
        yield "For the results of each class add --format=json"
    elif has_table:
        width = max(5, *(len(row["class"]) for row in found["classes"]))
        yield f"{'class':{width}}  images  recall  precision      F1"
        for row in found["classes"]:
            yield _ROW.format(**row, width=width)
