"""Tests trained networks, stores the results, and reports them."""

import numpy as np
import tensorflow as tf
from tqdm import tqdm

from claims import report
from claims.attacks import Network
from claims.measures import PGD_ATTACKS, Examiner
from common.errors import UserError
from common.files import write_files
from input_data import features as keys
from layers.backends import is_on_cpu
from runs.runner import read_json, write_json
from training.checkpoint import Architecture
from training.evaluate import Evaluator
from visualization.drawing import also_as

# Small on CPUs, whose caches then hold a layer's outputs.
_CPU_BATCH, _GPU_BATCH = 100, 500
# The images of attacked.png, odd ones, and the severity of the attack.
_SHOWN, _SHOWN_EPS = slice(1, 16, 2), 0.2


def run_tests(networks, config, output_dir, chosen, steps, figure_format):
    """Tests networks; writes robustness.json, tables and pictures.

    `networks` are triples of `named_checkpoints`; `chosen` is a dict from test
    to severities. Results that robustness.json has are not computed again.
    Raises UserError if no test fits, or if networks need different images.
    """
    tf.get_logger().setLevel("ERROR")  # every network is traced again
    evaluator, path = Evaluator(config), output_dir / "robustness.json"
    settings, *_, images, labels = _load(evaluator, *networks[0][1:])
    content = _read(path, settings | {"steps": steps})
    results, network, examples = content["results"], None, {}
    done = {_key(result) for result in results}
    for name, place, checkpoint in networks:
        _, model, architecture, *data = _load(evaluator, place, checkpoint)
        if not all(map(np.array_equal, data, (images, labels))):
            raise UserError(
                f"{place} needs other test images than {networks[0][1]}"
            )
        if network is None or network.model is not model:
            batch_size = _CPU_BATCH if is_on_cpu() else _GPU_BATCH
            network = Network(model, min(batch_size, len(images)))
        examiner = Examiner(network, architecture, *data, steps, config.seed)
        for test in chosen:
            if reason := examiner.misfit(test):
                print(f"{place}: not tested by {test}: {reason}", flush=True)
                continue
            row = {"network": name, "checkpoint": place, "test": test}
            todo = [row | {"severity": severity} for severity in chosen[test]]
            todo = [result for result in todo if _key(result) not in done]
            attacks = PGD_ATTACKS.get(test, 0) * sum(
                result["severity"] > 0 for result in todo
            )
            if attacks:
                minutes = attacks * examiner.pgd_seconds() / 60
                print(f"{place} {test}: about {minutes:.1f} min", flush=True)
            bar = {"leave": False, "mininterval": 1, "disable": not todo}
            for result in tqdm(todo, f"{name} {test}", **bar):
                result |= examiner.run(test, result["severity"])
                results.append(result)
                write_json(path, content)
            if todo:
                wrong = ", ".join(str(result["wrong"]) for result in todo)
                count = todo[0]["num_examples"]
                print(f"{place} {test}: wrong {wrong} of {count}", flush=True)
        if name not in examples and PGD_ATTACKS.keys() & chosen:
            examples[name] = examiner.examples(_SHOWN_EPS, _SHOWN)
    places = [(name, place) for name, place, _ in networks]
    shown = [
        r for r in results if r["test"] in chosen and _key(r)[:2] in places
    ]
    if not shown:
        raise UserError(f"no network can be tested by {', '.join(chosen)}")
    shown.sort(key=lambda result: places.index(_key(result)[:2]))
    title = f"{settings['dataset']}, first {len(images):,} test images"
    print(f"\n{title}:\n{report.table(shown)}\n")
    files = report.files(shown, title)
    if examples:
        files["attacked.png"] = report.attacked_png(
            examples, f"{title}: PGD, eps {_SHOWN_EPS}, {steps} steps"
        )
    files = also_as(figure_format, files)
    print(path, *write_files(output_dir, files), sep="\n")


def _key(result):
    return tuple(
        result[key] for key in ("network", "checkpoint", "test", "severity")
    )


def _load(evaluator, place, checkpoint):
    """Settings of the data, network, `Architecture`, images and labels."""
    config, model, pipeline = evaluator.load(checkpoint)
    spec = pipeline.spec
    if spec.num_targets != 1:
        raise UserError(f"{place} is not for images of one class each")
    if config.data_set.photograph_size:
        raise UserError(
            f"{place}: the tests need pixels in [0, 1], but networks see "
            f"standardized images of {config.dataset_name}"
        )
    architecture = Architecture.from_config(
        config, spec.shape, spec.num_targets, checkpoint.architecture
    )
    x, y = zip(*pipeline.evaluation_batches(_CPU_BATCH), strict=True)
    images = np.concatenate([batch[keys.IMAGES] for batch in x])
    labels = np.concatenate([batch[keys.LOGITS] for batch in y])
    settings = {
        "dataset": config.dataset_name,
        "num_examples": config.eval_size,
        "seed": config.seed,
    }
    return settings, model, architecture, images, labels


def _read(path, settings):
    """The content of robustness.json, which must have the same settings."""
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
