"""The tests of docs/robustness.md on one network."""

import dataclasses
import functools
import math
import timeit

import numpy as np

from claims import changes
from claims.attacks import Network
from common.errors import UserError
from common.flags import flag_specs, require_known
from input_data import keys

# Tests: units and severities for 28x28. 0 (of `scale` 1) changes nothing.
TESTS = {
    "shift": ("pixels", tuple(range(9))),
    "rotate": ("degrees", tuple(range(0, 91, 15))),
    "scale": ("factor", (0.5, 0.75, 1, 1.25, 1.5)),
    "shear": ("slope", (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)),
    "noise": ("standard deviation", (0, 0.1, 0.2, 0.3, 0.4, 0.5)),
    "blur": ("standard deviation in pixels", (0, 0.5, 1, 1.5, 2, 2.5, 3)),
    "occlude": ("side in pixels", (0, 2, 4, 6, 8, 10, 12, 14)),
    **dict.fromkeys(("fgsm", "pgd", "detect"), ("eps", (0, 0.1, 0.2, 0.3))),
    "iterations": ("routing iterations", (1, 2, 3, 4, 5)),
}
_PGD_ATTACKS = {"pgd": 2, "detect": 1}  # for each severity
_WHOLE = ("shift", "occlude", "iterations")
_SMALLEST = {"scale": 0.01, "iterations": 1}
_LARGEST = {"shift": 1000, "rotate": 360, "occlude": 1000}
_LARGEST |= dict.fromkeys(("fgsm", "pgd", "detect"), 1)  # pixels are in [0, 1]
_IN_PIXELS = ("shift", "blur", "occlude")
_ODD = slice(1, None, 2)


def choose(tests=None, texts=None):
    """Dict from the `tests` (default: all) to their severities.

    They are the `texts`, or None: see `default_severities`. Raises UserError
    for an unknown test or a severity that does not fit a test.
    """
    for test in tests or ():
        require_known("test", test, TESTS)
    return {
        test: tuple(_severity(test, t) for t in texts) if texts else None
        for test in TESTS
        if not tests or test in tests
    }


def default_severities(test, images):
    """The different severities of a test for images [N, H, W, C]."""
    _, severities = TESTS[test]
    factor = min(images.shape[1:3]) / 28
    if factor == 1 or test not in _IN_PIXELS:
        return severities
    digits = None if test in _WHOLE else 2
    return tuple(dict.fromkeys(round(s * factor, digits) for s in severities))


def _severity(test, text):
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    low, high = _SMALLEST.get(test, 0), _LARGEST.get(test, 100)
    if not low <= value <= high or (test in _WHOLE and value % 1):
        raise UserError(
            f"--severities: {text} is no severity of {test} ({low} to {high})"
        )
    return int(value) if value % 1 == 0 else value


class Examiner:
    """Tests a `Network` on N images, float32 [N, H, W, C] in [0, 1].

    `labels` are one-hot, float32 [N, classes]; `steps` are those of PGD, `seed`
    is that of random changes.
    """

    def __init__(self, network, images, labels, steps, seed):
        self._network, self._images, self._labels = network, images, labels
        self._steps, self._seed = steps, seed
        self._kept = {}  # attacks on all images

    def reason_to_skip(self, test):
        """Why a test does not fit the network; None if it fits."""
        model = self._network.model
        names = flag_specs(model.hparams).keys() - {*model.hparams.UNUSED}
        if test == "detect" and model.decoder is None:
            return "the network has no decoder"
        if test == "iterations" and "routing" not in names:
            return "the network has no hyper-parameter routing"
        return None

    def pgd_minutes(self, test, severities):
        """Estimated minutes of a test's attacks by PGD; 0 if it has none."""
        attacks = _PGD_ATTACKS.get(test, 0) * np.count_nonzero(severities)
        if not attacks or self.reason_to_skip(test):
            return 0
        one = self._images[:1], self._labels[:1]
        step = functools.partial(self._network.gradients, *one)
        _, seconds = timeit.repeat(step, number=1, repeat=2)  # compiles first
        batches = math.ceil(len(self._images) / self._network.batch_size)
        return attacks * self._steps * batches * seconds / 60

    def run(self, test, severity):
        """The counts of a test at one severity, a dict for JSON."""
        before = {"wrong_unchanged": self._wrong_before}
        if test in changes.CHANGES:
            arguments = self._images, severity, self._seed
            return before | self._count(changes.change_all(test, *arguments))
        if test == "detect":
            return before | self._detect(severity)
        if test == "iterations":
            return before | self._iterate(severity)
        steps = 1 if test == "fgsm" else self._steps
        counts, own = (
            self._count(self._attack(severity, steps, (direction,)))
            for direction in ("logits", "own_loss")
        )
        return {**before, **counts, "by_own_loss": own["wrong"]}

    def examples(self, name, eps, rows):
        """Rows of a picture: triples of label, images [n, H, W, C] and texts.

        PGD attacks the images at `rows`, a slice, of the network `name`.
        """
        attacked = self._attack(eps, self._steps, rows=rows)
        logits, decoded = self._network.predict(attacked)
        classes = self._labels[rows].argmax(-1), logits.argmax(-1)
        texts = [f"{a} as {b}" for a, b in zip(*classes, strict=True)]
        none = [""] * len(texts)
        found = [(f"{name}\nimage", self._images[rows], none)]
        found.append(("attacked", attacked, texts))
        if decoded is not None:
            found.append(("reconstruction", decoded, none))
            for n, distance in enumerate(self._distances(attacked)):
                is_detected = distance >= self._unchanged[1]
                verdict = "detected" if is_detected else "not detected"
                texts[n] += f"\ndistance {distance:.1f}\n{verdict}"
        return found

    def _count(self, images, rows=slice(None), network=None):
        """Counts of wrong predictions for `images`, changed ones of `rows`."""
        logits, _ = (network or self._network).predict(images)
        is_wrong = (keys.predicted(logits, 1) != self._labels[rows]).any(-1)
        is_wrong |= ~np.isfinite(logits).all(axis=-1)
        wrong = np.arange(len(self._labels))[rows][is_wrong].tolist()
        counts = {"wrong": len(wrong), "num_examples": len(images)}
        return {**counts, "wrong_examples": wrong}

    @functools.cached_property
    def _wrong_before(self):
        return self._count(self._images)["wrong_examples"]

    def _distances(self, images):
        _, reconstructions = self._network.predict(images)
        differences = self._network.seen(images) - reconstructions
        return np.linalg.norm(differences.reshape(len(images), -1), axis=1)

    def _attack(self, eps, steps, directions=("logits",), rows=slice(None)):
        """The attacked images at `rows`; PGD on all images is kept."""
        key = eps, steps, directions
        if key in self._kept:
            return self._kept[key][rows]
        data = self._images[rows], self._labels[rows]
        attacked = self._network.attack(*data, *key)
        if rows == slice(None) and steps > 1:
            self._kept[key] = attacked
        return attacked

    @functools.cached_property
    def _unchanged(self):
        # Even images set the threshold (5 % false alarms); odd are attacked.
        distances = self._distances(self._images)
        return distances, np.percentile(distances[::2], 95)

    def _detect(self, eps):
        unchanged, threshold = self._unchanged
        before = [n for n in self._wrong_before if n % 2]

        def measure(*directions):
            attacked = self._attack(eps, self._steps, directions, _ODD)
            counts = self._count(attacked, _ODD)
            is_missed = self._distances(attacked) < threshold
            success = {*counts["wrong_examples"]} - {*before}
            missed = sum(bool(is_missed[n // 2]) for n in success)
            return {**counts, "success": len(success), "undetected": missed}

        plain, aware = measure("logits"), measure("logits", "closer")
        return {
            **plain,
            "wrong_unchanged": before,
            # NaN, which is not JSON, detects every image.
            "threshold": None if np.isnan(threshold) else float(threshold),
            "false_alarms": int((~(unchanged[_ODD] < threshold)).sum()),
            "against_detector": {k: aware[k] for k in ("wrong", "undetected")},
        }

    def _iterate(self, routing):
        model = self._network.model
        shape = keys.ImageShape(*self._images.shape[1:], self._labels.shape[1])
        hparams = dataclasses.replace(model.hparams, routing=routing)
        other = type(model)(model.row, shape, model.num_targets, hparams)
        other.set_weights(model.get_weights())
        options = self._network.batch_size, self._network.preprocess
        network = Network(other, *options)
        return self._count(self._images, network=network)
