import keras
import numpy as np
import pytest
import tensorflow as tf

import layers
from input_data.keys import IMAGES
from testing import small_models
from testing.gradients import to_numpy

SHAPE = (18, 20, 2)
SIZES = small_models.SIZES["capsule"]
RNG = np.random.default_rng(3)
X = RNG.uniform(size=(6, *SHAPE)).astype("float32")
LABELS = np.array([2, 0, 1, 1, 0, 2])
ONE_HOT = np.eye(3, dtype="float32")[LABELS]


def small_network(**arguments):
    return layers.CapsuleNetwork(SHAPE, 3, **SIZES, **arguments)


def save_and_load(network, folder):
    network.save(folder / "network.keras")
    loaded = keras.models.load_model(folder / "network.keras")
    np.testing.assert_equal(to_numpy(loaded(X)), to_numpy(network(X)))
    return loaded


def assert_train_equally(first, second):
    """With the state of the optimizer."""
    np.testing.assert_allclose(
        first.fit(X, ONE_HOT, verbose=0).history["loss"],
        second.fit(X, ONE_HOT, verbose=0).history["loss"],
        rtol=1e-5,
    )


def test_it_is_the_model_of_the_experiments():
    model = small_models.small_model("capsule")
    network = small_network()
    network.set_weights(model.get_weights())
    expected = model({IMAGES: X})
    outputs = to_numpy(network(X))
    names = {"lengths": "logits", "capsules": "capsules", "remake": "recons"}
    for ours, theirs in names.items():
        np.testing.assert_array_equal(outputs[ours], to_numpy(expected[theirs]))
    default = layers.CapsuleNetwork((28, 28, 1), 10)
    assert default.count_params() == 8_215_728


@pytest.mark.parametrize("decoder", [True, False])
def test_it_learns_and_is_saved(tmp_path, decoder):
    keras.utils.set_random_seed(1)
    rule = layers.RoutingRule(logits="replace")
    options = {"decoder": decoder, "leaky": True, "rule": rule}
    network = small_network(padding="SAME", **options)
    network.compile(
        "adam", layers.margin_loss, metrics=["accuracy"], run_eagerly=True
    )
    labels = np.eye(3)[to_numpy(network(X))["lengths"].argmax(axis=-1)]
    labels[0] = np.roll(labels[0], 1)
    _, accuracy = network.evaluate(X, labels, verbose=0)
    assert accuracy == pytest.approx(5 / 6)
    history = network.fit(X, ONE_HOT, epochs=8, verbose=0).history
    assert history["loss"][-1] < 0.9 * history["loss"][0]
    assert ("remake" in to_numpy(network(X))) == decoder
    loaded = save_and_load(network, tmp_path)
    assert loaded.get_layer("capsule2").rule == rule
    assert_train_equally(loaded, network)


def test_frozen_layers_stay_frozen(tmp_path):
    network = small_network()
    for layer in (network.get_layer("conv1"), network.decoder.dense[0]):
        layer.trainable = False
    network.compile("adam", loss=layers.margin_loss, run_eagerly=True)
    network.fit(X, ONE_HOT, verbose=0)
    loaded = save_and_load(network, tmp_path)
    paths = [w.path for w in network.trainable_weights]
    assert [w.path for w in loaded.trainable_weights] == paths
    assert len(paths) == 8
    assert_train_equally(loaded, network)
    copy = layers.CapsuleNetwork.from_config(network.get_config())
    assert len(copy.trainable_weights) == 8


@pytest.mark.parametrize("mode", ["int8", "int4", "float8", "lora"])
def test_adapted_and_quantized_networks_are_saved(tmp_path, mode):
    if mode == "int4" and not hasattr(keras.quantizers, "pack_int4"):
        pytest.skip("Keras 3.10 has no int4")
    network = small_network()
    if mode == "lora":
        for layer in (network.get_layer("conv1"), network.decoder.dense[0]):
            layer.enable_lora(2)
            layer.lora_kernel_b.assign(layer.lora_kernel_b + 0.1)
    else:
        network.quantize(mode)
    loaded = save_and_load(network, tmp_path)
    layer = loaded.decoder.dense[0]
    assert layer.lora_enabled == (mode == "lora")
    assert mode in ("lora", layer.quantization_mode)


GRAY = X[..., :1]
SPARSE, DENSE = "sparse_categorical_crossentropy", "categorical_crossentropy"


@pytest.mark.parametrize(
    "forms",
    [
        ({"lengths": DENSE}, GRAY[..., 0], {"lengths": ONE_HOT}),
        (SPARSE, GRAY, (LABELS[:, None],)),
        (DENSE, GRAY, ONE_HOT[..., None]),
    ],
)
def test_images_and_labels_may_have_other_forms(forms):
    losses = []
    for loss, *batch in (forms, (DENSE, GRAY, ONE_HOT)):
        keras.utils.set_random_seed(2)
        network = layers.CapsuleNetwork((18, 20, 1), 3, **SIZES)
        network.compile("sgd", loss)
        losses.append(network.test_on_batch(*batch))
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_data_sets_without_a_known_size_of_images():
    size = tf.TensorSpec((None, None, None, 2)), tf.TensorSpec((None, 3))
    data = tf.data.Dataset.from_generator(
        lambda: iter([(X, ONE_HOT)]), output_signature=size
    ).apply(tf.data.experimental.assert_cardinality(1))
    network = small_network()
    network.compile("sgd", layers.margin_loss)
    expected = network.test_on_batch(X, ONE_HOT)
    assert network.evaluate(data, verbose=0) == pytest.approx(expected)
    errors = ValueError, tf.errors.InvalidArgumentError
    with pytest.raises(errors, match="(?i)reshape|incompatible"):
        network.evaluate(data.map(lambda x, y: (x[:, 1:], y)), verbose=0)


def test_empty_batches(tmp_path):
    network = small_network()
    expected = network.compute_output_shape((0, *SHAPE))
    calls = [network, network.predict_on_batch]
    if keras.backend.backend() == "tensorflow":
        path = tmp_path / "saved"
        network.export(path, verbose=False)
        calls.append(keras.layers.TFSMLayer(path, call_endpoint="serve"))
    for call in calls:
        outputs = call(X[:0])
        assert {n: tuple(v.shape) for n, v in outputs.items()} == expected


def test_other_shapes_and_outputs_are_errors():
    network = small_network()
    with pytest.raises(ValueError, match="lengths"):
        network.compile("sgd", {"lengths": "mse", "remake": "mse"})
    channels_first = np.moveaxis(X, -1, 1).astype("uint8")
    calls = [network, network.predict_on_batch]
    if keras.backend.backend() == "jax":
        del calls[1]  # it reshapes them
    for call in calls:
        with pytest.raises(ValueError, match="incompatible"):
            call(channels_first)
    with pytest.warns(UserWarning, match="channels"):
        layers.CapsuleNetwork((3, 18, 18), 3, padding="SAME", **SIZES)


@pytest.mark.parametrize("num_classes", [3, 1])
def test_classes_that_are_present_are_reconstructed(num_classes):
    network = layers.CapsuleNetwork(SHAPE, num_classes, **SIZES)
    network.compile("adam", "binary_crossentropy", run_eagerly=True)
    for dense in network.decoder.dense:
        dense.kernel.assign(10 * RNG.normal(size=dense.kernel.shape))
    capsules = network(X)["capsules"]
    rows = [[0, 0, 0], [1, 0, 0], [0, 1, 1], [1, 1, 1], [0, 1, 0], [0, 0, 1]]
    k_hot = np.array(rows, "float32")[:, :num_classes]
    masked = layers.mask_capsules(capsules, k_hot)
    # The mask of all classes changes nothing.
    drawn = network.decoder(masked, np.ones((6, num_classes)))
    expected = to_numpy(layers.reconstruction_loss(X, drawn)).mean()
    for labels in (k_hot, k_hot.squeeze()):
        y_pred = network(X)
        error = network.compute_loss(X, labels, y_pred)
        decoder, network.decoder = network.decoder, None
        error -= network.compute_loss(X, labels, y_pred)
        network.decoder = decoder
        assert to_numpy(error) == pytest.approx(expected, rel=1e-3)
