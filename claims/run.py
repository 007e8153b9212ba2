"""Runs the tests of docs/robustness.md on networks."""

import dataclasses
import functools
import time

import numpy as np

from claims import attacks, changes
from common.flags import flag_specs
from input_data import features as keys
from layers.backends import is_on_cpu
from runs.runner import read_json, write_json
from training.evaluate import Evaluator
from training.formats import open_checkpoint

# Tests and their severities. Severity 0 (of `scale` 1) changes nothing.
SEVERITIES = {
    "shift": tuple(range(9)),
    "rotate": tuple(range(0, 91, 15)),
    "scale": (0.5, 0.75, 1, 1.25, 1.5),
    "shear": (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6),
    "noise": (0, 0.1, 0.2, 0.3, 0.4, 0.5),
    "blur": (0, 0.5, 1, 1.5, 2, 2.5, 3),
    "occlude": (0, 2, 4, 6, 8, 10, 12, 14),
    "fgsm": (0, 0.1, 0.2, 0.3),
    "pgd": (0, 0.1, 0.2, 0.3),
    "detect": (0, 0.1, 0.2, 0.3),
    "iterations": (1, 2, 3, 4, 5),
}
# Small on CPUs, whose caches then hold a layer's outputs.
_CPU_BATCH, _GPU_BATCH = 100, 500
FALSE_ALARMS = 5  # percent


class Tester:
    """Tests one network on images [N, H, W, C] with one-hot labels."""

    def __init__(self, model, architecture, images, labels, steps, seed):
        self._model, self._architecture = model, architecture
        self._images, self._labels = images, labels
        self._steps, self._seed = steps, seed
        size = _CPU_BATCH if is_on_cpu() else _GPU_BATCH
        self._batch_size = min(size, len(images))
        self._network = attacks.Network(model, self._batch_size)
        self._attacked = functools.cache(self._attack)

    def _attack(self, eps, directions):
        return self._network.pgd(
            self._images, self._labels, eps, self._steps, directions
        )

    def tests(self):
        """Names of the tests that fit the network."""
        has = {
            "detect": self._model.decoder is not None,
            "iterations": "routing" in flag_specs(self._model.hparams)
            and "routing" not in self._model.hparams.UNUSED,
        }
        return [name for name in SEVERITIES if has.get(name, True)]

    def run(self, test, severity):
        """The counts of a test at one severity, a dict for JSON."""
        if test in ("fgsm", "pgd", "detect", "iterations"):
            return getattr(self, f"_{test}")(severity)
        images = changes.change_all(test, self._images, severity, self._seed)
        return self._count(self._network.predict(images)[0])

    def _count(self, logits, rows=slice(None)):
        wrong = _is_wrong(logits, self._labels)
        numbers = np.arange(len(wrong))[rows]
        wrong = numbers[wrong[rows]].tolist()
        return {
            "wrong": len(wrong),
            "num_examples": len(numbers),
            "wrong_examples": wrong,
        }

    def _fgsm(self, eps):
        return self._with_own_loss(
            lambda direction: self._network.fgsm(
                self._images, self._labels, eps, direction
            )
        )

    def _pgd(self, eps):
        return self._with_own_loss(
            lambda direction: self._attacked(eps, (direction,))
        )

    def _with_own_loss(self, attack):
        counts, own = (
            self._count(self._network.predict(attack(direction))[0])
            for direction in ("logits", "own_loss")
        )
        return {**counts, "by_own_loss": own["wrong"]}

    def _detect(self, eps):
        # Even images set the threshold, odd images are attacked.
        distances = self._network.predict(self._images)[1]
        threshold = np.percentile(distances[::2], 100 - FALSE_ALARMS)
        odd = slice(1, None, 2)

        def measure(images):
            logits, distances = self._network.predict(images)
            counts = self._count(logits, odd)
            success = _is_wrong(logits, self._labels)[odd]
            undetected = success & (distances[odd] < threshold)
            return {**counts, "undetected": int(undetected.sum())}

        aware = measure(self._attacked(eps, ("logits", "closer")))
        return {
            **measure(self._attacked(eps, ("logits",))),
            "threshold": float(threshold),
            "false_alarms": int((distances[odd] > threshold).sum()),
            "against_detector": {k: aware[k] for k in ("wrong", "undetected")},
        }

    def _iterations(self, routing):
        hparams = dataclasses.replace(self._model.hparams, routing=routing)
        model = dataclasses.replace(self._architecture, hparams=hparams).build()
        model.set_weights(self._model.get_weights())
        network = attacks.Network(model, self._batch_size)
        return self._count(network.predict(self._images)[0])


def _is_wrong(logits, labels):
    """Bool [N]; logits that are not finite are wrong."""
    is_right = logits.argmax(axis=-1) == labels.argmax(axis=-1)
    return ~(is_right & np.isfinite(logits).all(axis=-1))


def test_all(networks, config, output_dir, tests, steps):
    """Tests (name, checkpoint) pairs; robustness.json has the results.

    Results that it has are not computed again.
    """
    evaluator = Evaluator(config)
    path = output_dir / "robustness.json"
    settings = {
        "dataset": config.dataset_name,
        "num_examples": config.eval_size,
        "seed": config.seed,
        "steps": steps,
    }
    content = {**settings, "results": []}
    if path.exists():
        content = read_json(path)
    done = {
        (r["network"], r["checkpoint"], r["test"], r["severity"])
        for r in content["results"]
    }
    for name, template in networks:
        checkpoint = open_checkpoint(template, config.model or name)
        _, model, pipeline = evaluator.load(checkpoint)
        batches = list(pipeline.evaluation_batches(100))
        images = np.concatenate([x[keys.IMAGES] for x, _ in batches])
        labels = np.concatenate([y[keys.LOGITS] for _, y in batches])
        tester = Tester(
            *(model, checkpoint.architecture, images, labels),
            *(steps, config.seed),
        )
        for test in tests or tester.tests():
            start, counts = time.monotonic(), []
            for severity in SEVERITIES[test]:
                if (name, template, test, severity) in done:
                    continue
                result = {
                    "network": name,
                    "checkpoint": template,
                    "test": test,
                    "severity": severity,
                    **tester.run(test, severity),
                }
                content["results"].append(result)
                counts.append(result["wrong"])
            write_json(path, content)
            print(
                f"{template} {test}: wrong {counts}, "
                f"{time.monotonic() - start:.1f} s",
                flush=True,
            )
