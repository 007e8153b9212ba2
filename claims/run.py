"""Tests trained networks, stores the results, and reports them."""

import dataclasses
import itertools
import operator
import time

import numpy as np
import tensorflow as tf
from tqdm import tqdm

from claims import report
from claims.attacks import Network
from claims.measures import Examiner
from common.errors import UserError
from common.files import write_files
from common.flags import is_external
from input_data import keys
from input_data.registry import find_data_set
from layers.backends import is_on_cpu
from runs.pages import markdown, table_files
from runs.runner import read_json, remaining, write_json
from training.evaluate import Evaluator
from training.formats import open_checkpoint
from visualization.drawing import also_as

# The images of attacked.png, odd ones, and the severity of the attack.
_SHOWN, _SHOWN_EPS = slice(1, 16, 2), 0.2
_key = operator.itemgetter("network", "checkpoint", "test", "severity")


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

    `networks` are triples of `named_checkpoints`; `chosen` is a dict from test
    to severities. Results that robustness.json has are not computed again.
    Raises UserError if no test fits, or if networks need different images.
    """
    tf.get_logger().setLevel("ERROR")  # every network is traced again
    evaluator, path = Evaluator(config), output_dir / "robustness.json"
    used, _, images, labels = _load(evaluator, *networks[0][1:])
    content = _read(path, used, steps)
    results, network, examples = content["results"], None, {}
    done, minutes = set(map(_key, results)), {}
    waiting = [*chosen] * len(networks)
    for name, place, checkpoint in networks:
        _, model, *data = _load(evaluator, place, checkpoint)
        if not all(map(np.array_equal, data, (images, labels))):
            raise UserError(
                f"{place} needs other test images than {networks[0][1]}"
            )
        if network is None or network.model is not model:
            # The caches of CPUs hold a layer's outputs for small batches.
            batch_size = 100 if is_on_cpu() else 500
            network = Network(model, min(batch_size, len(images)))
        examiner = Examiner(network, *data, steps, used.seed)
        for test in chosen:
            left, waiting = waiting, waiting[1:]
            if reason := examiner.misfit(test):
                print(f"{place}: not tested by {test}: {reason}", flush=True)
                continue
            row = {"network": name, "checkpoint": place, "test": test}
            todo = [row | {"severity": severity} for severity in chosen[test]]
            todo = [result for result in todo if _key(result) not in done]
            if not todo:
                continue
            for other in chosen.keys() - minutes.keys():
                minutes[other] = examiner.pgd_minutes(other, chosen[other])
            text = remaining("test", len(left), sum(map(minutes.get, left)))
            print(f"{place} {test}: {text}", flush=True)
            start = time.monotonic()
            for result in tqdm(todo, f"{name} {test}", leave=False):
                result |= examiner.run(test, result["severity"])
                results.append(result)
                write_json(path, content)
            minutes[test] = (time.monotonic() - start) / 60
            wrong = ", ".join(str(result["wrong"]) for result in todo)
            text = f"wrong {wrong} of {result['num_examples']}"
            print(f"{place} {test}: {text}", flush=True)
        attacks = {"pgd", "detect"} & chosen.keys()
        if name not in examples and not all(map(examiner.misfit, attacks)):
            examples[name] = examiner.examples(name, _SHOWN_EPS, _SHOWN)
    places = [(name, place) for name, place, _ in networks]
    shown = [
        r for r in results if r["test"] in chosen and _key(r)[:2] in places
    ]
    if not shown:
        raise UserError(f"no network can be tested by {', '.join(chosen)}")
    shown.sort(key=lambda result: places.index(_key(result)[:2]))
    title = f"{used.dataset}, first {len(images):,} test images"
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
    """The `Config`, network, images and labels of a checkpoint."""
    config, model, pipeline = evaluator.load(checkpoint)
    if pipeline.spec.num_targets != 1:
        raise UserError(f"{place} is not for images of one class each")
    if find_data_set(config.dataset).photograph_size:
        raise UserError(
            f"{place}: the tests need pixels in [0, 1], but networks see "
            f"standardized images of {config.dataset}"
        )
    x, y = zip(*pipeline.evaluation_batches(100), strict=True)
    images = np.concatenate([batch[keys.IMAGES] for batch in x])
    labels = np.concatenate([batch[keys.LABELS] for batch in y])
    if len(images) < 2:
        raise UserError(f"{config.dataset} has only one test image")
    return config, model, images, labels


def _read(path, config, steps):
    """The content of robustness.json, which must have the same settings."""
    settings = {
        "dataset": config.dataset,
        "num_examples": config.eval_size,
        "seed": config.seed,
        "steps": steps,
    }
    if not path.exists():
        return settings | {"results": []}
    content = read_json(path)
    for key, value in settings.items():
        if content.get(key) != value:
            raise UserError(
                f"{path} has {key} {content.get(key)}, not {value}; choose "
                "another --output_dir"
            )
    return content
