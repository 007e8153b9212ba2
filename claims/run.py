"""Tests trained networks, stores the results, and reports them."""

import dataclasses
import hashlib
import itertools
import time

import numpy as np
import tensorflow as tf
from tqdm import tqdm

from claims import report
from claims.attacks import Network
from claims.measures import Examiner, default_severities
from common.errors import UserError
from common.files import read_json, write_json
from common.flags import is_external
from input_data import keys
from layers.backends import is_on_cpu
from runs.pages import markdown, table_files
from runs.runner import remaining
from training.evaluate import Evaluator
from training.formats import open_checkpoint
from visualization.drawing import also_as, write_files

# The images of attacked.png, odd ones, and the severity of the attack.
_SHOWN, _SHOWN_EPS = slice(1, 16, 2), 0.2
# Increase it when a test changes: its earlier results then do not count.
_VERSION = 1
_KEYS = ("dataset", "num_images", "seed", "steps")
_KEYS += ("network", "checkpoint", "test", "severity")


def named_checkpoints(arguments, config):
    """Opens the checkpoints of the arguments NAME=CHECKPOINT.

    {} in CHECKPOINT stands for 0 to `config.num_trials` - 1. A row of the
    user's own is `config.model`, or NAME is MODULE:NAME-LABEL. Returns a list
    of (name, path, checkpoint). Raises UserError for other arguments.
    """
    paths = {}
    for argument in arguments:
        name, _, template = argument.partition("=")
        if not template or name in paths:
            raise UserError(f"{argument} is not a new NAME=CHECKPOINT")
        paths[name] = dataclasses.replace(config, checkpoint=template).members
    if not paths:
        raise UserError("give NAME=CHECKPOINT, once for each network")
    own = {name: name.partition("-")[0] for name in paths if is_external(name)}
    return [
        (name, path, open_checkpoint(path, own.get(name, config.model)))
        for name in paths
        for path in paths[name]
    ]


def run_tests(networks, config, output_dir, chosen, steps, figure_format):
    """Tests networks; writes robustness.json, tables and pictures.

    `networks` are triples of `named_checkpoints`; `chosen` is the dict of
    `choose`. Results that robustness.json has for the same settings are not
    computed again, unless weights, images or labels changed. Raises UserError
    if no test fits, or if networks need different images.
    """
    tf.get_logger().setLevel("ERROR")  # every network is traced again
    evaluator, path = Evaluator(config), output_dir / "robustness.json"
    used, *_, images, labels = _load(evaluator, *networks[0][1:])
    chosen = {t: s or default_severities(t, images) for t, s in chosen.items()}
    content = read_json(path, "robustness") if path.exists() else {}
    results = {tuple(map(r.get, _KEYS)): r for r in content.get("results", ())}
    settings = used.dataset, len(images), used.seed, steps
    network, shown, examples = None, [], {}
    minutes, waiting = {}, [*chosen] * len(networks)
    # An existing picture could be of other weights.
    attacks = {"pgd", "detect"}
    if not (output_dir / "attacked.png").exists():
        attacks &= chosen.keys()
    for name, place, checkpoint in networks:
        _, model, preprocess, *data = _load(evaluator, place, checkpoint)
        if not all(map(np.array_equal, data, (images, labels))):
            raise UserError(
                f"{place} needs other test images than {networks[0][1]}"
            )
        parts = model, preprocess
        if not network or (network.model, network.preprocess) != parts:
            # The caches of CPUs hold a layer's outputs for small batches.
            batch_size = min(100 if is_on_cpu() else 500, len(images))
            network = Network(model, batch_size, preprocess)
        examiner = Examiner(network, *data, steps, used.seed)
        digest = _digest(model, *settings, *data)
        done = {k for k, r in results.items() if r.get("sha256") == digest}
        for test in chosen:
            left, waiting = waiting, waiting[1:]
            if reason := examiner.reason_to_skip(test):
                print(f"{place}: not tested by {test}: {reason}", flush=True)
                continue
            severities = dict.fromkeys(chosen[test])  # a flag may repeat some
            rows = [(*settings, name, place, test, s) for s in severities]
            shown += rows
            todo = [row for row in rows if row not in done]
            if not todo:
                continue
            for other in chosen.keys() - minutes.keys():
                minutes[other] = examiner.pgd_minutes(other, chosen[other])
            text = remaining("test", len(left), sum(map(minutes.get, left)))
            print(f"{place} {test}: {text}", flush=True)
            start = time.monotonic()
            for row in tqdm(todo, f"{name} {test}", leave=False):
                result = dict(zip(_KEYS, row, strict=True), sha256=digest)
                results[row] = result | examiner.run(test, row[-1])
                write_json(path, {"results": [*results.values()]})
            minutes[test] = (time.monotonic() - start) / 60
            wrong = ", ".join(str(results[row]["wrong"]) for row in rows)
            text = f"wrong {wrong} of {results[rows[0]]['num_examples']}"
            print(f"{place} {test}: {text}", flush=True)
        if name not in examples and not all(
            map(examiner.reason_to_skip, attacks)
        ):
            examples[name] = examiner.examples(name, _SHOWN_EPS, _SHOWN)
    if not shown:
        raise UserError(f"no network can be tested by {', '.join(chosen)}")
    title = f"{used.dataset}, first {len(images):,} test images"
    shown = [results[row] for row in shown]
    *table, text = report.summary(shown)
    print(f"\n{title}:\n{markdown(*table, padded=True)}\n\n{text}\n")
    files = table_files("robustness", *table)
    files["robustness.tex"] = report.latex(table[1], title)
    files["robustness.png"] = report.draw(shown, title)
    if examples:
        title += f": PGD, eps {_SHOWN_EPS}, {steps} steps"
        rows = itertools.chain(*examples.values())
        files["attacked.png"] = report.attacked_png(rows, title)
    files = also_as(figure_format, files)
    print(path, *write_files(output_dir, files), sep="\n")


def _load(evaluator, place, checkpoint):
    config, model, pipeline = evaluator.load(checkpoint)
    if pipeline.spec.num_targets != 1:
        raise UserError(f"{place} is not for images of one class each")
    x, y = zip(*pipeline.in_pixels().evaluation_batches(100), strict=True)
    images = np.concatenate([batch[keys.IMAGES] for batch in x])
    labels = np.concatenate([batch[keys.LABELS] for batch in y])
    if len(images) < 2:
        raise UserError(f"{config.dataset} has only one test image")
    if images.min() < 0 or images.max() > 1:
        raise UserError(f"{config.dataset}: the tests need pixels in [0, 1]")
    return config, model, pipeline.preprocess, images, labels


def _digest(model, *parts):
    sha256 = hashlib.sha256(f"{_VERSION} {model.name} {model.hparams}".encode())
    for part in (*parts, *model.get_weights()):
        sha256.update(np.asarray(part).tobytes())
    return sha256.hexdigest()
