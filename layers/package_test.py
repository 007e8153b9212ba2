import importlib.util
import inspect
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
from testing.sources import imports

FOLDER = pathlib.Path(layers.__file__).parent
ROOT = FOLDER.parent
MODULES = [p for p in FOLDER.rglob("*.py") if not p.stem.endswith("_test")]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_layers_import_only_keras_and_backends(path):
    backends = {"tensorflow", "jax", "torch"}
    allowed = {*sys.stdlib_module_names, "keras", "numpy", *backends}
    assert imports(path.read_text()) <= allowed


def public_functions():
    """Functions of `layers`, and constructors and methods of its classes."""
    for name, value in vars(layers).items():
        members = {name: value}
        if inspect.isclass(value):
            public = [n for n in dir(value) if n[0] != "_" or n == "__init__"]
            members = {f"{name}.{n}": getattr(value, n) for n in public}
        for path, member in members.items():
            function = inspect.unwrap(getattr(member, "__func__", member))
            module = getattr(function, "__module__", None) or ""
            if inspect.isfunction(function) and module.startswith("layers."):
                yield path, function


def test_public_functions_have_complete_types():
    functions = dict(public_functions())
    assert {"margin_loss", "Capsule.call", "Capsule.__init__"} <= set(functions)
    for name, function in functions.items():
        typed = set(inspect.get_annotations(function)) | {"self", "cls"}
        if function.__name__ != "__init__":
            assert "return" in typed, name
        assert set(inspect.signature(function).parameters) <= typed, name


@pytest.mark.slow
def test_users_see_types(tmp_path):
    api = pytest.importorskip("mypy.api")
    (tmp_path / "user.py").write_text(
        "import layers\n"
        "reveal_type(layers.softmax_loss)\n"
        "reveal_type(layers.Capsule(10, 16).num_capsules)\n"
        "reveal_type(layers.ConvVBCapsules(2, 3)((0, 0)))\n"
    )
    options = ["--config-file", str(ROOT / "pyproject.toml")]
    output, _, _ = api.run([*options, str(tmp_path / "user.py")])
    function = "def (labels: Any, logits: Any) -> Any"
    types = [function, "int", "tuple[Any, Any]"]
    revealed = [line for line in output.splitlines() if "Revealed" in line]
    assert [line.split('"')[1] for line in revealed] == types, output


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


def test_capsule_layers_loads_files_of_layers(tmp_path, capsule_layers):
    inputs = keras.Input((5, 2))
    model = keras.Model(inputs, layers.Length()(layers.Capsule(3, 4)(inputs)))
    model.save(tmp_path / "model.keras")
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
    modules = (path.relative_to(FOLDER).as_posix() for path in MODULES)
    files = {"py.typed", "mnist.npz", *modules}
    assert packaged == {f"capsule_layers/{name}" for name in files}
