import keras
import numpy as np
import pytest
from keras import ops

import layers
from input_data.features import IMAGES, ImageShape
from layers.capsule_test import Blunt, Sharpened
from models.registry import build_model
from testing.small_models import small_hparams

SHAPE = (18, 20, 2)
SIZES = {
    "conv_channels": 3,
    "num_prime_capsules": 2,
    "primary_atoms": 4,
    "class_atoms": 5,
}
RNG = np.random.default_rng(3)
IMAGES_OF_3 = RNG.uniform(size=(6, *SHAPE)).astype("float32")
LABELS = np.array([2, 0, 1, 1, 0, 2])
ONE_HOT = np.eye(3, dtype="float32")[LABELS]


def compiled(**arguments):
    network = layers.CapsuleNetwork(SHAPE, 3, **SIZES, **arguments)
    network.compile("adam", loss=layers.margin_loss, metrics=["accuracy"])
    return network


@pytest.mark.parametrize("labels", [LABELS, LABELS[:, None]])
def test_labels_that_are_not_one_hot_are_refused(labels):
    with pytest.raises(ValueError, match="takes one-hot labels"):
        compiled().fit(IMAGES_OF_3, labels, verbose=0)


def test_labels_are_needed():
    with pytest.raises(ValueError, match="one-hot labels .* Received: None"):
        compiled().evaluate(IMAGES_OF_3, verbose=0)


def outputs_of(network):
    return {
        name: ops.convert_to_numpy(ops.cast(values, "float32"))
        for name, values in network(IMAGES_OF_3).items()
    }


def test_the_defaults_are_the_papers_network():
    network = layers.CapsuleNetwork((28, 28, 1), 10)
    assert network.count_params() == 8_215_728
    outputs = network.compute_output_shape((7, 28, 28, 1))
    assert outputs["lengths"] == (7, 10)
    assert outputs["capsules"] == (7, 10, 16)
    assert outputs["remake"] == (7, 28, 28, 1)


def test_it_is_the_model_of_the_experiments():
    model = build_model(
        "capsule", ImageShape(*SHAPE, 3), 1, small_hparams("capsule")
    )
    network = compiled()
    network.set_weights(model.get_weights())
    expected = model({IMAGES: IMAGES_OF_3})
    outputs = network(IMAGES_OF_3)
    for ours, theirs in (
        ("lengths", "logits"),
        ("capsules", "capsules"),
        ("remake", "recons"),
    ):
        np.testing.assert_array_equal(
            ops.convert_to_numpy(outputs[ours]),
            ops.convert_to_numpy(expected[theirs]),
        )


def test_the_loss_redraws_the_capsule_of_the_label():
    network = compiled()
    outputs = network.predict(IMAGES_OF_3, verbose=0)
    assert list(outputs["lengths"].argmax(axis=-1)) != list(LABELS)

    def cost(labels):
        remake = network.decoder(outputs["capsules"], labels)
        return np.mean(
            ops.convert_to_numpy(
                layers.margin_loss(ONE_HOT, outputs["lengths"])
                + layers.reconstruction_loss(IMAGES_OF_3, remake)
            )
        )

    results = network.evaluate(
        IMAGES_OF_3, ONE_HOT, verbose=0, return_dict=True
    )
    assert results["loss"] == pytest.approx(cost(LABELS), rel=1e-5)
    longest = outputs["lengths"].argmax(axis=-1)
    assert results["loss"] != pytest.approx(cost(longest), rel=1e-5)
    assert results["accuracy"] == pytest.approx(np.mean(longest == LABELS))
    np.testing.assert_allclose(
        ops.convert_to_numpy(network.decoder(outputs["capsules"], longest)),
        outputs["remake"],
        atol=1e-6,
    )


@pytest.mark.parametrize("decoder", [True, False])
def test_it_learns_and_loads_again(tmp_path, decoder):
    keras.utils.set_random_seed(1)
    network = compiled(decoder=decoder, leaky=True, padding="SAME")
    history = network.fit(IMAGES_OF_3, ONE_HOT, epochs=8, verbose=0).history
    assert history["loss"][-1] < 0.9 * history["loss"][0]
    network.save(tmp_path / "network.keras")
    loaded = keras.models.load_model(tmp_path / "network.keras")
    outputs = outputs_of(loaded)
    assert ("remake" in outputs) == decoder
    for name, expected in outputs_of(network).items():
        np.testing.assert_array_equal(outputs[name], expected)
    if not decoder:
        return
    # The optimiser's state comes along.
    np.testing.assert_allclose(
        loaded.fit(IMAGES_OF_3, ONE_HOT, verbose=0).history["loss"],
        network.fit(IMAGES_OF_3, ONE_HOT, verbose=0).history["loss"],
        rtol=1e-5,
    )


@pytest.mark.parametrize(
    "rule", [layers.RoutingRule(logits="replace"), Sharpened(times=4.0)]
)
def test_its_class_capsules_may_route_by_another_rule(tmp_path, rule):
    network = layers.CapsuleNetwork(SHAPE, 3, **SIZES, rule=rule)
    plain = layers.CapsuleNetwork(SHAPE, 3, **SIZES)
    plain.set_weights(network.get_weights())
    expected = outputs_of(network)
    assert not np.array_equal(outputs_of(plain)["lengths"], expected["lengths"])
    network.save(tmp_path / "network.keras")
    loaded = keras.models.load_model(tmp_path / "network.keras")
    assert loaded.get_layer("capsule2").rule == rule
    np.testing.assert_array_equal(
        outputs_of(loaded)["lengths"], expected["lengths"]
    )


def test_it_is_saved_with_its_types_of_numbers(tmp_path):
    network = layers.CapsuleNetwork(SHAPE, 3, **SIZES, dtype="mixed_bfloat16")
    expected = outputs_of(network)
    network.save(tmp_path / "network.keras")
    assert keras.config.dtype_policy().name == "float32"
    assert network.dtype_policy.name == "mixed_bfloat16"
    loaded = keras.models.load_model(tmp_path / "network.keras")
    for name, found in outputs_of(loaded).items():
        np.testing.assert_array_equal(found, expected[name])
    plain = layers.CapsuleNetwork(SHAPE, 3, **SIZES)
    plain.set_weights(network.get_weights())
    lengths = outputs_of(plain)["lengths"]
    assert not np.array_equal(lengths, expected["lengths"])
    np.testing.assert_allclose(lengths, expected["lengths"], atol=0.02)


@pytest.mark.parametrize(
    ("frozen", "count"),
    [
        (lambda n: [n.get_layer("conv1"), n.decoder], 4),
        (lambda n: n.decoder.dense[:1], 10),
    ],
)
def test_frozen_layers_stay_so(tmp_path, frozen, count):
    network = compiled()
    for layer in frozen(network):
        layer.trainable = False
    network.compile("adam", loss=layers.margin_loss)
    network.fit(IMAGES_OF_3, ONE_HOT, verbose=0)
    network.save(tmp_path / "network.keras")
    loaded = keras.models.load_model(tmp_path / "network.keras")
    kept = [w.path for w in network.trainable_weights]
    assert [w.path for w in loaded.trainable_weights] == kept
    assert len(kept) == count
    # With the optimiser's state for those.
    np.testing.assert_allclose(
        loaded.fit(IMAGES_OF_3, ONE_HOT, verbose=0).history["loss"],
        network.fit(IMAGES_OF_3, ONE_HOT, verbose=0).history["loss"],
        rtol=1e-5,
    )


def test_a_frozen_network_stays_so(tmp_path):
    compiled()  # whose layers without a name take the first numbers
    network = compiled()
    network.trainable = False
    network.save(tmp_path / "network.keras")
    loaded = keras.models.load_model(tmp_path / "network.keras")
    assert not loaded.trainable_weights
    np.testing.assert_array_equal(
        outputs_of(loaded)["lengths"], outputs_of(network)["lengths"]
    )


def test_another_is_made_of_its_configuration():
    network = compiled()
    network.decoder.trainable = False
    other = layers.CapsuleNetwork.from_config(network.get_config())
    other.compile("adam", loss=layers.margin_loss)
    assert len(other.trainable_weights) == 6
    other.fit(IMAGES_OF_3, ONE_HOT, verbose=0)


def test_a_rule_that_would_lose_a_parameter_is_not_saved(tmp_path):
    network = layers.CapsuleNetwork(SHAPE, 3, **SIZES, rule=Blunt(5.0))
    with pytest.raises(ValueError, match="would be saved without times"):
        network.save(tmp_path / "network.keras")


def test_a_part_of_it_is_saved(tmp_path):
    network = layers.CapsuleNetwork(SHAPE, 3, **SIZES)
    lengths = keras.Model(network.input, network.output["lengths"])
    lengths.save(tmp_path / "lengths.keras")
    loaded = keras.models.load_model(tmp_path / "lengths.keras")
    np.testing.assert_array_equal(
        ops.convert_to_numpy(loaded(IMAGES_OF_3)),
        outputs_of(network)["lengths"],
    )


def test_float16_scales_the_loss():
    network = layers.CapsuleNetwork(SHAPE, 3, **SIZES, dtype="mixed_float16")
    network.compile("adam", loss=layers.margin_loss)
    assert isinstance(network.optimizer, keras.optimizers.LossScaleOptimizer)
