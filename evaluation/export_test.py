import os

import keras
import numpy as np
import pytest

from evaluation.export import export, functional
from input_data import features as keys
from input_data.features import ImageShape
from models.capsule import HParams
from models.registry import MODELS, build_model
from old.errors import UserError
from testing import commands
from testing.small_models import small_hparams

SHAPE = ImageShape(18, 20, 2, 3)
SMALL = HParams(conv_channels=8, num_prime_capsules=2)
IMAGES = np.random.default_rng(3).uniform(size=(5, 18, 20, 2))
IMAGES = IMAGES.astype("float32")
# Nothing of this project but the layers may be needed.
LOAD = """
import sys
import keras
import numpy as np
import layers
folder = sys.argv[1]
images = np.load(f"{folder}/images.npy", allow_pickle=False)
network = keras.models.load_model(f"{folder}/net.keras")
outputs = network.predict(images, verbose=0)
served = keras.layers.TFSMLayer(f"{folder}/saved", call_endpoint="serve")
np.savez(f"{folder}/keras.npz", **outputs)
np.savez(f"{folder}/saved.npz", **served(images))
ours = (
    *("checkpoints", "common", "devices", "evaluation", "input_data"),
    *("models", "training"),
)
print([name for name in sys.modules if name.split(".")[0] in ours])
"""


def make(name="capsule", num_targets=1):
    hparams = SMALL if name == "capsule" else small_hparams(name)
    model = build_model(name, SHAPE, num_targets, hparams, seed=6)
    # The longest capsule shall not be the same for all images.
    model.set_weights([weights * 3 for weights in model.get_weights()])
    return model


def assert_equal_outputs(outputs, expected):
    assert set(outputs) == set(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(
            outputs[name], keras.ops.convert_to_numpy(values), atol=1e-6
        )


def test_both_forms_give_the_same_numbers_in_another_process(tmp_path):
    model = make()
    network = functional(model, SHAPE)
    export(tmp_path / "net.keras", network)
    export(tmp_path / "saved", network)
    np.save(tmp_path / "images.npy", IMAGES)
    script = tmp_path / "load.py"
    script.write_text(LOAD)
    code, output, errors = commands.run(
        script,
        tmp_path,
        env={
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": str(commands.ROOT),
            "TF_CPP_MIN_LOG_LEVEL": "3",
            # The same products, for the same numbers.
            "TF_ENABLE_ONEDNN_OPTS": os.environ["TF_ENABLE_ONEDNN_OPTS"],
        },
    )
    assert code == 0, errors
    assert output == "[]\n"
    expected = model({keys.IMAGES: IMAGES})
    assert set(expected) == {"logits", "capsules", "recons"}
    for form in ("keras", "saved"):
        outputs = np.load(tmp_path / f"{form}.npz", allow_pickle=False)
        assert_equal_outputs(outputs, expected)
        np.testing.assert_allclose(
            outputs["logits"],
            np.linalg.norm(outputs["capsules"], axis=-1),
            atol=1e-6,
        )


# Two targets are two images that are redrawn.
@pytest.mark.parametrize(
    ("name", "num_targets"),
    [(name, 1) for name in sorted(MODELS)]
    + [(n, 2) for n in sorted(MODELS) if hasattr(small_hparams(n), "remake")],
)
def test_every_model_is_a_functional_one(tmp_path, name, num_targets):
    model = make(name, num_targets)
    path = tmp_path / "net.keras"
    export(path, functional(model, SHAPE))
    loaded = keras.models.load_model(path)
    assert_equal_outputs(loaded(IMAGES), model({keys.IMAGES: IMAGES}))


def test_it_redraws_the_longest_capsule():
    model = make()
    outputs = functional(model, SHAPE)(IMAGES)
    longest = np.argmax(np.asarray(outputs["logits"]), axis=-1)
    assert len(set(longest)) > 1
    labelled = model(
        {keys.IMAGES: IMAGES, keys.RECONS_LABEL: longest.astype("int32")}
    )
    np.testing.assert_array_equal(outputs["recons"], labelled["recons"])


@pytest.mark.parametrize("name", ["net.keras", "saved"])
def test_nothing_is_overwritten(tmp_path, name):
    path = tmp_path / name
    path.write_text("mine")
    with pytest.raises(UserError, match=f"{name} is there already"):
        export(path, functional(make(), SHAPE))
    assert [p.name for p in tmp_path.iterdir()] == [name]
    assert path.read_text() == "mine"


def test_torch_has_no_saved_model(tmp_path, monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "torch")
    with pytest.raises(UserError, match="saved: torch writes no SavedModel"):
        export(tmp_path / "saved", None)
    assert list(tmp_path.iterdir()) == []


def test_a_failure_leaves_nothing(tmp_path, monkeypatch):
    def fail(self, path):
        path.write_text("a part")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(keras.Model, "save", fail)
    path = tmp_path / "net.keras"
    message = f"^--export={path} cannot be written: No space left on device$"
    with pytest.raises(UserError, match=message):
        export(path, functional(make(), SHAPE))
    assert list(tmp_path.iterdir()) == []


def test_the_folder_must_be_there(tmp_path):
    path = tmp_path / "nowhere" / "net.keras"
    with pytest.raises(UserError, match="cannot be written: No such file"):
        export(path, functional(make(), SHAPE))
