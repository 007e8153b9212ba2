"""Random settings and damaged files: one line, no traceback, no hang.

Whatever is thrown at the functions behind the commands either works or raises
`UserError` (absl's `flags.Error` for a flag) of one short line.
"""

import dataclasses
import json
import pathlib
import random
import shutil

import numpy as np
import pytest
from absl import flags as absl_flags

import checkpoints
from checkpoints.architecture import Architecture
from input_data import registry
from input_data.formats.image_file import decoded
from input_data.options import Options
from input_data.splits import Split
from models.hparams import parse_overrides
from models.registry import MODELS, model_class
from old import flags
from old.errors import UserError
from old.fields import meanings
from testing import tiny_files
from testing.patience import within_seconds
from training.config import Config

pytestmark = pytest.mark.slow
CASES = 500
SECONDS = 20
LONGEST_LINE = 1000
CHECKPOINT = (
    pathlib.Path(checkpoints.__file__).parent / "testdata" / "model.ckpt-200"
)
VALUES = [
    *("", "0", "1", "-1", "2", "3", "1e308", "nan", "inf", "-inf", "true"),
    *("٣", "1_0", "0x10", "1.5", "None", "null", "cpu", "gpu:1", "gpu:x"),
    *("SAME", "VALID", "x" * 5000, "9" * 5000, "\x1b[31m", "a=b", "preset"),
    *("digits", "mnist", "tfds:", "tfds:nothing", "/dev/null", "/nowhere"),
    *("a@99999999999", "x.tfrecords@99999", "{}", "../..", "\n", "é"),
]


def attempt(function, *arguments, lines=1):
    """What a function gives; None after an error that is as it should be."""
    with within_seconds(SECONDS):
        try:
            return function(*arguments)
        except (UserError, absl_flags.Error) as error:
            message = str(error)
            assert len(message.splitlines()) <= lines, message
            assert max(map(len, message.splitlines())) < LONGEST_LINE, message
            assert "\x1b" not in message
            return None


def random_settings(rng):
    names = rng.sample(sorted(meanings(Config)), rng.randint(1, 4))
    return [f"--{name}={rng.choice(VALUES)}" for name in names]


def test_random_flags():
    rng = random.Random(0)
    spec = registry.load("digits", Split.TEST, Options()).spec
    accepted = 0
    for _ in range(CASES):
        settings = attempt(flags.parse, Config, random_settings(rng), lines=3)
        if settings is not None:
            accepted += 1
            # Lines of hyper-parameters follow an unknown one.
            attempt(Architecture.from_config, settings, spec, lines=50)
    assert CASES / 20 < accepted < CASES


def test_random_hyper_parameters():
    rng = random.Random(1)
    accepted = 0
    for _ in range(CASES):
        hparams_class = model_class(rng.choice(sorted(MODELS))).HParams
        defaults = hparams_class()
        names = [*meanings(hparams_class), "preset", "nonsense"]
        chosen = rng.choices(names, k=rng.randint(1, 3))
        # The default often: of random values alone few are accepted.
        text = ",".join(
            f"{name}={rng.choice(VALUES + 15 * [getattr(defaults, name, '')])}"
            for name in chosen
        )
        # The valid names are listed, a line each.
        found = attempt(
            lambda c, t: c(**parse_overrides(c, t)),
            hparams_class,
            text,
            lines=len(names) + 1,
        )
        accepted += found is not None
    assert CASES / 50 < accepted < CASES


def test_random_data_options():
    rng = random.Random(2)
    numbers = [None, 0, 1, 2, 3, 27, 28, 29, 1000, 10**5, 10**9]
    accepted = 0
    for _ in range(CASES // 5):
        options = Options(
            dataset="digits",
            num_targets=rng.choice([None, 1, 2]),
            eval_size=rng.choice(numbers[2:]),
            shift=rng.choice(numbers),
            pad=rng.choice(numbers),
            distort=rng.random() < 0.3,
        )
        split = rng.choice(list(Split))
        found = attempt(registry.load, options.dataset, split, options)
        accepted += found is not None
    assert CASES / 50 < accepted < CASES / 5


def damaged(rng, content):
    """A copy with bytes changed, cut off, repeated, or none left."""
    content = bytearray(content)
    kind = rng.randrange(4)
    if kind == 0:
        for _ in range(rng.randint(1, 8)):
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    elif kind == 1:
        del content[rng.randrange(len(content)) :]
    elif kind == 2:
        place = rng.randrange(min(len(content), 300))
        content[place : place + 8] = b"\xff" * rng.randint(0, 16)
    else:
        content += content[: rng.randint(1, 100)]
    return bytes(content)


WRITERS = {
    "mnist": tiny_files.write_idx,
    "cifar10": tiny_files.write_cifar10,
    "norb": tiny_files.write_norb,
    "svhn": tiny_files.write_svhn,
    "affnist": tiny_files.write_affnist,
    "arrays": tiny_files.write_arrays,
    "images": tiny_files.write_images,
}


@pytest.mark.parametrize("name", sorted(WRITERS))
def test_damaged_data_files(tmp_path, name):
    rng = random.Random(name)
    WRITERS[name](tmp_path)
    paths = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    for _ in range(CASES // (2 * len(WRITERS))):
        path = rng.choice(paths)
        whole = path.read_bytes()
        broken = damaged(rng, whole)
        path.write_bytes(broken)
        split = rng.choice([Split.TRAIN, Split.TEST])
        options = Options(data_dir=str(tmp_path), image_size=None)
        attempt(registry.load, name, split, options)
        assert path.read_bytes() == broken
        path.write_bytes(whole)
    assert registry.load(name, Split.TEST, options).spec.num_examples > 0


@pytest.mark.parametrize("suffix", ["PNG", "JPEG", "BMP", "GIF", "WEBP"])
def test_damaged_images(suffix):
    import io

    from PIL import Image

    rng = random.Random(suffix)
    pixels = np.random.default_rng(0).integers(0, 256, (9, 7, 3), np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, suffix)

    def read(content):
        with decoded(content, "x", color=False) as image:
            return np.asarray(image)

    for _ in range(CASES // 5):
        attempt(read, damaged(rng, buffer.getvalue()))


def test_damaged_checkpoints(tmp_path):
    rng = random.Random(3)
    opened = checkpoints.open(CHECKPOINT)
    model = opened.architecture.build()
    opened.load(model, opened.architecture)
    weights = model.get_weights()
    loaded = 0
    for number in range(CASES // 2):
        path = tmp_path / str(number) / CHECKPOINT.name
        shutil.copytree(CHECKPOINT, path)
        file = rng.choice(sorted(path.iterdir()))
        file.write_bytes(damaged(rng, file.read_bytes()))
        found = attempt(checkpoints.open, path)
        if found is not None:  # a line break that JSON can do without
            assert dataclasses.replace(found, path=opened.path) == opened
            found.load(model, opened.architecture)
            loaded += 1
        shutil.rmtree(path.parent)
    assert loaded < CASES / 50
    for now, before in zip(model.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(now, before)


def build_and_load(checkpoint):
    model = checkpoint.architecture.build()
    checkpoint.load(model, checkpoint.architecture)
    return model


def test_edited_checkpoint_json(tmp_path):
    """With a sound checksum, but values that mean nothing."""
    from checkpoints.checkpoint import JSON_FILE, _json_checksum

    rng = random.Random(4)
    strange = [None, -1, 0, 7, 1e308, "x", [], {}, [[]], True, "\x1b", 10**30]
    strange += [10**5, "\ud800", "x" * 5000]
    loaded = 0
    path = tmp_path / CHECKPOINT.name
    shutil.copytree(CHECKPOINT, path)
    whole = json.loads((path / JSON_FILE).read_text())
    whole.pop("sha256_of_this")
    for _ in range(CASES // 2):
        values = json.loads(json.dumps(whole))
        place = values
        while True:
            key = rng.choice(sorted(place))
            if isinstance(place[key], dict) and rng.random() < 0.7:
                place = place[key]
                continue
            if rng.random() < 0.2:
                del place[key]
            else:
                place[key] = rng.choice(strange)
            break
        values["sha256_of_this"] = _json_checksum(values)
        (path / JSON_FILE).write_text(json.dumps(values))
        found = attempt(checkpoints.open, path)
        if found is not None:
            loaded += attempt(build_and_load, found) is not None
    assert 0 < loaded < CASES // 2
