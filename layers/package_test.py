import ast
import importlib.util
import pathlib
import shutil
import subprocess
import sys
import zipfile

import keras
import numpy as np
import pytest
from keras import ops

import layers

FOLDER = pathlib.Path(layers.__file__).parent
ROOT = FOLDER.parent
MODULES = [p for p in FOLDER.glob("*.py") if not p.name.endswith("_test.py")]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_layers_import_only_keras_and_backends(path):
    backends = {"tensorflow", "jax", "torch"}
    allowed = {*sys.stdlib_module_names, "keras", "numpy", *backends}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module]
        else:
            continue
        assert {name.partition(".")[0] for name in names} <= allowed


@pytest.fixture
def capsule_layers():
    """The package by the name under which it is installed."""
    name, folder = "capsule_layers", FOLDER
    spec = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    registered = dict(keras.saving.get_custom_objects())
    package = importlib.util.module_from_spec(spec)
    sys.modules[name] = package
    spec.loader.exec_module(package)
    yield package
    # The package that was imported last has replaced the registered classes.
    keras.saving.get_custom_objects().update(registered)
    for module in [m for m in sys.modules if m.partition(".")[0] == name]:
        del sys.modules[module]


def test_capsule_layers_loads_files_of_layers(tmp_path, request):
    inputs = keras.Input((5, 2))
    model = keras.Model(inputs, layers.Length()(layers.Capsule(3, 4)(inputs)))
    model.save(tmp_path / "model.keras")
    capsule_layers = request.getfixturevalue("capsule_layers")
    assert capsule_layers.__name__ == "capsule_layers"
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(loaded.layers[1]) is capsule_layers.Capsule
    x = np.random.default_rng(1).normal(size=(2, 5, 2)).astype("float32")
    np.testing.assert_array_equal(
        ops.convert_to_numpy(loaded(x)), ops.convert_to_numpy(model(x))
    )
    decoder = capsule_layers.pretrained("mnist").get_layer("recons")
    assert type(decoder) is capsule_layers.Reconstruction


@pytest.mark.slow
def test_the_wheel_contains_the_modules_and_no_tests(tmp_path):
    source = tmp_path / "source"
    shutil.copytree(FOLDER, source / "layers")
    for name in ("pyproject.toml", "setup.py", "README.md"):
        shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "wheel", f"--wheel-dir={tmp_path}"]
    subprocess.run(
        [*pip, "--quiet", "--no-deps", "--no-build-isolation", source],
        check=True,
    )
    (wheel,) = tmp_path.glob(f"capsule_layers-{layers.__version__}-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    packaged = {n for n in names if n.startswith("capsule_layers/")}
    files = {"py.typed", "mnist.npz", *(path.name for path in MODULES)}
    assert packaged == {f"capsule_layers/{name}" for name in files}
