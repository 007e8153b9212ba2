"""Measures trainings on photographs that stay on disk or in memory.

  python -m benchmarks.photographs_benchmark --counts=1500,6000,24000

Writes JPEG files of 640x480 to --folder, if it lacks them. Every line has a
process of its own. "decode" makes batches of 96x96 without training; the other
kinds train photo_capsule: "features" on stored features of 224x224, "memory"
and "disk" with `train_backbone=true` on 96x96. Seconds are those from the start
of the process to the first step (or batch).
"""

import dataclasses
import json
import multiprocessing
import pathlib
import sys
import tempfile
import time

import numpy as np
from PIL import Image

import experiment
from common import flags
from common.flags import field
from config import Config
from input_data import registry, stored


@dataclasses.dataclass(frozen=True)
class Settings:
    """The flags."""

    counts: str = field("1500,6000", "Numbers of photographs.")
    folder: str = field("/tmp/photographs", "Folder for the photographs.")
    kinds: str = field("features,memory,decode,disk", "Kinds of lines.")
    steps: int = field(60, "Steps of 64 images.", at_least=2)
    weights: str = field("none", "Weights of MobileNetV3Small, for features.")


def write_photographs(folder, count):
    """Writes JPEG files of 10 classes."""
    for number in range(count):
        path = folder / f"class{number % 10}" / f"{number}.jpg"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            values = np.random.default_rng(number).integers(0, 256, (12, 16, 3))
            image = Image.fromarray(values.astype(np.uint8))
            image.resize((640, 480), Image.Resampling.BICUBIC).save(path)


def measure(kind, folder, settings, results):
    """Puts seconds to the first step, images/s and megabytes in a queue."""
    start, size = time.time(), 224 if kind == "features" else 96
    stored.MEMORY_BYTES = {"memory": sys.maxsize, "features": 5e8}.get(kind, 0)
    hparams = "train_backbone=true,backbone_weights=none"
    if kind == "features":
        hparams = f"backbone_weights={settings.weights}"
    with tempfile.TemporaryDirectory() as summary_dir:
        config = Config(
            dataset="images",
            data_dir=str(folder),
            color=True,
            image_size=size,
            resize="crop",
            model="photo_capsule",
            batch_size=64,
            max_steps=settings.steps,
            summary_dir=summary_dir,
            hparams_override=hparams,
        )
        if kind == "decode":
            pipeline = registry.load(config, train=True)
            ends = [time.time()]
            for _ in pipeline.training_batches(64, 0, 0, settings.steps):
                ends.append(time.time())
            seconds, images = ends[1] - start, 64 * (settings.steps - 1)
            results.put((seconds, images / (ends[-1] - ends[1]), None))
            return
        experiment.run(config)
        run = json.loads(pathlib.Path(summary_dir, "run.json").read_text())
    speed, peak = run["images_per_second"], run["peak_megabytes"]
    results.put((time.time() - start - run["seconds"], speed, peak))


def main(_):
    """Measures every kind for every number of photographs."""
    settings = flags.settings_of(Settings)
    context = multiprocessing.get_context("spawn")
    for count in map(int, settings.counts.split(",")):
        folder = pathlib.Path(settings.folder, str(count))
        write_photographs(folder, count)
        for kind in settings.kinds.split(","):
            results = context.SimpleQueue()
            arguments = kind, folder, settings, results
            process = context.Process(target=measure, args=arguments)
            process.start()
            process.join()
            print(count, kind, *results.get(), flush=True)


if __name__ == "__main__":
    flags.define(Settings)
    flags.run(main)
