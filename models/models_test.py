import dataclasses
import itertools

import keras
import numpy as np
import pytest
from keras import ops

import layers
from common.errors import UserError
from common.flags import flag_specs
from input_data import keys
from input_data.keys import ImageShape
from models.hparams import parse_overrides
from models.optimizer import compile_model
from models.table import MODELS
from testing import numpy_oracle
from testing.small_models import (
    SMALL,
    build_model,
    example_batch,
    small_hparams,
    small_model,
    small_shape,
)

MNIST = ImageShape(28, 28, 1, 10)
SHAPES = {"matrix_capsule": ImageShape(32, 32, 2, 5)}
SHAPES["photo_capsule"] = ImageShape(96, 96, 3, 10)
# By model, of which each needs an entry, and --hparams_override.
WEIGHT_COUNTS = {
    "capsule": {"": 8_215_728, "remake=false": 6_804_384},
    # 25*512+512 + 25*512*256+256 + 4*4*256*1024+1024 + 1024*10+10
    "baseline": {"": 13_312 + 3_277_056 + 4_195_328 + 10_250},
    # 9*64+64 + 9*64*64+64 + 9*64*128+128 + 9*128*128+128, then 128*160, or
    # 128*128+128 + 128*10+10
    "shared_capsule": {"": 279_488},
    "pooling": {"": 276_810},
    # With moving statistics, of the convolution and of the decoder.
    "deepcaps": {"": 8_500_337 + 2 * 128 + 32},
    # With moving statistics.
    "efficient_capsule": {"": 162_400 + 1_411_344},
    # Trained weights, and twice the normalized channels: 864 of convolutions,
    # 336 atoms of capsules (zxy 840), three branches.
    "homogeneous_capsule": {"": 1_513_686 + 2 * 1203}
    | {"order=zxy,merge=equal": 1_514_190 + 2 * 1707},
    # 9*64+64 + 64*8*16 + 4*32 + 9*8*16*16 + 9*16*16*16 + 4*4*16*10*16 + 16+1
    "inverted_attention": {"": 105_233},
    # 25*2*32+32 + 32*32*17+32*17 + 2 * (9*32*32*16+2*32) + 32*5*16+2*5
    "matrix_capsule": {"": 317_194, "preset=small": 68_754},
    # 25*64+2*64 + 64*8*17+32 + 9*8*16*16 + 9*16*16*16 + 16*10*16, and moving
    # statistics
    "vb_capsule": {"": 68_320 + 2 * (64 + 16 + 32 + 32 + 20)},
    # The backbone, 576*256+256 and, from 9 positions, 9*32*8*160+160; shared
    # weights are 8*160.
    "photo_capsule": {"": 939_120 + 147_712 + 368_800}
    | {"share_weights=true": 939_120 + 147_712 + 1_440},
    # With moving statistics, two for each channel that is normalized.
    "self_routing": {"": 501_072 + 2 * (336 + 272)}
    | {"depth=2": 1_130_576 + 2 * (608 + 256)},
}


@pytest.mark.parametrize("name", sorted(MODELS))
def test_weight_counts(name):
    hparams, shape = MODELS[name].hparams, SHAPES.get(name, MNIST)
    for text, count in WEIGHT_COUNTS[name].items():
        values = hparams(**parse_overrides(hparams, text))
        model = build_model(name, shape, 1, values)
        assert model.count_params() == count
        assert model.multiply_adds() > 1000


@pytest.mark.usefixtures("shallow")
@pytest.mark.parametrize("name", sorted(MODELS))
def test_the_seed_fixes_the_initial_weights(name):
    first, again, other = (
        small_model(name, seed=seed).get_weights() for seed in (1, 1, 2)
    )
    for a, b, c in zip(first, again, other, strict=True):
        np.testing.assert_array_equal(a, b)
        assert np.ptp(a) == 0 or (a != c).any()  # biases are equal


def test_names_do_not_depend_on_networks_built_before():
    for _ in range(2):
        layers.networks.capsule(keras.Input((17, 17, 1)), 2, conv_channels=3)
        model = small_model("capsule")
        assert [weight.path for weight in model.weights[:2]] == [
            "capsule/conv1/kernel",
            "capsule/conv1/bias",
        ]


@pytest.mark.parametrize(
    ("name", "stddevs"),
    [
        ("capsule", [0.05, 0.1, 0.1, 0.1, 0.1, 0.1]),
        ("baseline", [0.05, 0.05, 0.1, 0.1]),
    ],
)
def test_initial_weights_follow_the_reference(name, stddevs):
    model = build_model(name, MNIST, 1, MODELS[name].hparams())
    weights = model.get_weights()
    for kernel, stddev in zip(weights[::2], stddevs, strict=True):
        assert np.abs(kernel).max() <= 2 * stddev
        # The deviation of a normal distribution cut at two deviations.
        np.testing.assert_allclose(kernel.std(), 0.8796 * stddev, rtol=0.02)
    for bias in weights[1::2]:
        np.testing.assert_array_equal(bias, np.float32(0.1))


# Weights of present and of absent classes in losses of three classes.
MARGINS = {"efficient_capsule": (1, 0.5)}
MARGINS |= dict.fromkeys(("pooling", "shared_capsule"), (1 / 3, 0.25 / 3))
# Weights of squared pixel errors.
PIXELS = {"capsule": 0.0005, "efficient_capsule": 0.392 / (18 * 20 * 2)}


@pytest.mark.parametrize(
    ("name", "loss_type", "num_targets"),
    [
        (name, loss_type, 1 + (first + second) % 2)
        for first, name in enumerate(("baseline", "capsule"))
        for second, loss_type in enumerate(("margin", "softmax", "sigmoid"))
    ]
    + [(name, None, 2) for name in MARGINS]
    + [("efficient_capsule", None, 1)],
)
def test_the_loss_is_classification_plus_reconstruction(
    name, loss_type, num_targets
):
    values = {"loss_type": loss_type} if loss_type else {}
    model = small_model(name, SMALL, num_targets, **values)
    model.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
    x, y = example_batch(SMALL, num_targets)
    logs = model.test_on_batch(x, y, return_dict=True)
    # float64, or 1 - p is rounded away.
    outputs = {k: np.asarray(v, "float64") for k, v in model(x).items()}
    labels, logits = y[keys.LABELS], outputs[keys.LOGITS]
    if loss_type:
        cost = numpy_oracle.classification_loss(loss_type, labels, logits)
    else:
        present, absent = MARGINS[name]
        cost = present * labels * np.maximum(0, 0.9 - logits) ** 2
        cost += absent * (1 - labels) * np.maximum(0, logits - 0.1) ** 2
        cost = cost.sum(axis=-1)
    cost = cost.mean()
    expected = {"batch_classification_cost": cost, "loss": cost}
    if model.decoder is not None:
        error = PIXELS[name] * sum(
            ((outputs[r] - y[r]) ** 2).sum() / len(labels)
            for r in keys.RECONS_BY_TARGET[:num_targets]
        )
        expected |= {"reconstruction_error": error, "loss": cost + error}
    found = {name: logs[name] for name in expected}
    assert found == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("name", "padding", "smallest"),
    [
        *(("capsule", "VALID", 17), ("capsule", "SAME", 1)),
        *(("matrix_capsule", "VALID", 17), ("matrix_capsule", "SAME", 13)),
        *(("baseline", "VALID", 13), ("deepcaps", None, 1)),
        *(("self_routing", None, 1), ("shared_capsule", None, 14)),
        *(("efficient_capsule", None, 11), ("homogeneous_capsule", None, 9)),
        ("photo_capsule", None, 32),
    ],
)
def test_the_smallest_image(name, padding, smallest):
    hparams = {"padding": padding} if padding else {}
    small_model(name, ImageShape(smallest, 40, 1, 2), **hparams)
    if smallest > 1:
        too_small = ImageShape(40, smallest - 1, 1, 2)
        size = f"images of 40x{smallest - 1} do not fit model {name}:"
        with pytest.raises(UserError, match=size):
            small_model(name, too_small, **hparams)


@pytest.mark.usefixtures("shallow")
@pytest.mark.parametrize("name", sorted(MODELS))
def test_mixed_bfloat16_keeps_logits_and_weights_in_float32(name):
    keras.config.set_dtype_policy("mixed_bfloat16")
    model = small_model(name)
    model.compile(keras.optimizers.SGD(0.01), run_eagerly=True)
    x, y = example_batch(small_shape(name), 1)
    assert np.isfinite(model.train_on_batch(x, y, return_dict=True)["loss"])
    dtype = keras.backend.standardize_dtype(model(x)[keys.LOGITS].dtype)
    assert {dtype, *(w.dtype for w in model.weights)} == {"float32"}


@pytest.mark.parametrize("num_targets", [1, 2])
def test_reconstructions_of_the_labels_or_the_longest_capsules(num_targets):
    model = small_model("capsule", SMALL, num_targets)
    x, _ = example_batch(SMALL, num_targets)
    given = [x[name] for name in keys.LABEL_BY_TARGET[:num_targets]]
    order = np.argsort(-ops.convert_to_numpy(model(x)[keys.LOGITS]), axis=1)
    longest = order[:, :num_targets].T.astype("int32")
    names = keys.RECONS_BY_TARGET[:num_targets]
    for inputs, labels in ((x, given), ({keys.IMAGES: x["images"]}, longest)):
        outputs = model(inputs)
        assert set(outputs) == {keys.LOGITS, keys.CAPSULES, *names}
        for name, label in zip(names, labels, strict=True):
            expected = model.decoder(outputs[keys.CAPSULES], label)
            np.testing.assert_array_equal(
                *map(ops.convert_to_numpy, (outputs[name], expected))
            )


@pytest.mark.parametrize(
    ("name", "couplings"),
    [
        *(("capsule", (3, 4, 1, 2, 2)), ("shared_capsule", (3, 4, 3, 4, 1))),
        *(("deepcaps", (3, 4, 3, 3, 2)), ("matrix_capsule", (1, 4, 1, 1, 2))),
        *(("vb_capsule", (1, 4, 2, 2, 2)), ("self_routing", (1, 4, 3, 3, 3))),
        ("inverted_attention", (2, 4, 2, 2, 2)),
        ("efficient_capsule", (1, 4, 1, 1, 3)),
    ],
)
def test_couplings_are_by_position_and_sum_to_1(name, couplings):
    model = small_model(name)
    x, _ = example_batch(SMALL, 1)
    routing = model.routing_of(x[keys.IMAGES])
    assert routing.couplings.shape == (*couplings, SMALL.num_classes)
    assert not routing.leaky
    sums = ops.convert_to_numpy(routing.couplings).sum(axis=-1)
    np.testing.assert_allclose(sums, 1, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("homogeneous_capsule", "branch4"),
        ("matrix_capsule", "class_capsules/poses"),
    ],
)
def test_class_capsules_come_from_the_last_layer(name, layer):
    x, _ = example_batch(SMALL, 1)
    model = small_model(name)
    expected = model.activations(x[keys.IMAGES])[layer]
    np.testing.assert_array_equal(model(x)[keys.CAPSULES], expected)


def test_leaky_routing_starts_with_a_share_for_no_class():
    x, _ = example_batch(SMALL, 1)
    routing = small_model("capsule", leaky=True).routing_of(x[keys.IMAGES])
    assert routing.leaky
    couplings = ops.convert_to_numpy(routing.couplings)
    np.testing.assert_allclose(couplings[0], 1 / (SMALL.num_classes + 1), 1e-6)
    assert couplings.sum(axis=-1).max() < 1


# Of `BaseHParams`: values that are usual in this test, and others.
TRAINING = {"decay_rate": 0.5, "decay_steps": 1, "learning_rate": 0.001}
TRAINING |= {"ema": 0.0, "optimizer": "adam", "schedule": "exponential"}
OTHERS = [{"decay_rate": 0.4}, {"decay_steps": 2}, {"learning_rate": 0.002}]
OTHERS += [{"ema": 0.9}, {"optimizer": "muon"}]
OTHERS += [{"schedule": "cosine"}, {"schedule": "linear"}]


def test_hyper_parameters_of_every_model_change_the_training():
    states = []
    for changed in ({}, *OTHERS):
        model = small_model("pooling", **TRAINING | changed)
        compile_model(model, max_steps=4)
        model.run_eagerly = True
        for _ in range(3):
            model.train_on_batch(*example_batch(SMALL, 1))
        variables = [*model.weights, *model.optimizer.variables]
        states.append(np.concatenate([np.ravel(v) for v in variables]))
    for one, other in itertools.combinations(states, 2):
        assert one.shape != other.shape or not np.allclose(one, other, 1e-6)


# They name files and stored features, see photo_capsule_test.py.
OF_STORED = ["backbone_weights", "views"]


@pytest.mark.parametrize("name", sorted(MODELS))
@pytest.mark.usefixtures("shallow")
def test_other_hyper_parameters_change_the_network_or_the_loss(name):
    row, shape = MODELS[name], small_shape(name)
    x, y = example_batch(shape, 1)
    x[keys.STEP] = np.full(4, 10_000)  # in the middle of a training

    def loss_with(hparams):
        model = build_model(name, shape, 1, hparams)
        return float(model.compute_loss(x, y, model(x)))

    usual = small_hparams(name, **({"remake": True} if row.decoder else {}))
    loss = loss_with(usual)
    for field, spec in flag_specs(usual).items():
        if field in (*TRAINING, *OF_STORED, "verbose"):
            continue
        value = getattr(usual, field)
        others = [choice for choice in spec.choices if choice != value]
        if spec.kind is bool:
            others = [not value]
        elif not others:
            others = [2 * value if spec.kind is int else 0.5 * value + 0.05]
        for other in others:
            changed = dataclasses.replace(usual, **{field: other})
            # networks_test.py shows the effects of the network's arguments.
            if changed.options(row.network) == usual.options(row.network):
                assert loss_with(changed) != pytest.approx(loss, rel=1e-6)


@pytest.mark.parametrize(
    ("name", "fewest_axes"), [("self_routing", 1), ("matrix_capsule", 2)]
)
def test_weights_decay(name, fewest_axes):
    model = small_model(name, SMALL, weight_decay=0.1)
    x, y = example_batch(SMALL, 1)
    outputs = model(x)
    loss = 0.05 * sum(
        np.square(ops.convert_to_numpy(w)).sum()
        for w in model.trainable_weights
        if len(w.shape) >= fewest_axes
    )
    loss += np.mean(model.example_losses(x, y, outputs)[0])
    found = float(model.compute_loss(x, y, outputs))
    assert found == pytest.approx(loss, rel=1e-5)


def test_self_routing_starts_with_equal_classes_and_trains_all_weights():
    model = small_model("self_routing", MNIST)
    compile_model(model, max_steps=4)
    model.run_eagerly = True
    x, y = example_batch(MNIST, 1)
    capsules = ops.convert_to_numpy(model(x)[keys.CAPSULES])
    np.testing.assert_allclose(capsules, np.full((4, 10, 1), 0.1), rtol=1e-5)
    before = model.get_weights()
    for _ in range(3):  # of zero routing weights the inputs have no gradient
        model.train_on_batch(x, y)
    pairs = zip(before, model.get_weights(), strict=True)
    assert all((a != b).any() for a, b in pairs)
