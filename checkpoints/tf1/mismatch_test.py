"""The settings that explain why a TF1 checkpoint does not fit."""

import pytest

from checkpoints.tf1.mismatch import describe_mismatch
from testing.tf1_examples import architecture_of, shapes_of

EXPLAINED = [
    (
        {"num_prime_capsules": 3},
        {},
        "num_prime_capsules=3 is in the checkpoint, 2 was asked for",
        "conv_capsule1/weights is [9, 9, 256, 24], should be [9, 9, 256, 16]",
    ),
    (
        {"remake": True},
        {"remake": False},
        "remake=True is in the checkpoint, False was asked for",
        "unexpected: recons/recons_1/weights [48, 512]",
    ),
    (
        {"remake": False},
        {"remake": True},
        "remake=False is in the checkpoint, True was asked for",
        "missing: recons/recons_3/biases [440]",
    ),
    (
        {"height": 11, "width": 13, "padding": "SAME"},
        {"height": 20, "width": 22},
        None,  # neither the other padding nor a square image explains both
        "capsule2/weights is [84, 8, 48], should be [12, 8, 48]",
    ),
    (
        {"height": 28, "width": 28, "remake": False},
        {"remake": False},
        # 27 and 28 pixels leave 6 positions each.
        "images of 27x27 or 28x28 fit the checkpoint, 20x22 were asked for",
        "capsule2/weights is [72, 8, 48], should be [12, 8, 48]",
    ),
    (
        {"height": 28, "width": 28},
        {},
        "images of 28x28 fit the checkpoint, 20x22 were asked for",
        "recons/recons_3/biases is [784], should be [440]",
    ),
    (
        {"padding": "SAME"},
        {"padding": "VALID"},
        "padding=SAME is in the checkpoint, VALID was asked for",
        "capsule2/weights is [220, 8, 48], should be [12, 8, 48]",
    ),
    (
        {"model": "baseline", "padding": "VALID"},
        {"model": "baseline", "padding": "SAME"},
        "padding=VALID is in the checkpoint, SAME was asked for",
        "fc1/weights is [1536, 1024], should be [7680, 1024]",
    ),
    (
        {"depth": 3},
        {"depth": 1},
        "depth=3 is in the checkpoint, 1 was asked for",
        "conv1/weights is [9, 9, 3, 256], should be [9, 9, 1, 256]",
    ),
    (
        {"classes": 5},
        {"classes": 3},
        "num_classes=5 is in the checkpoint, 3 was asked for",
        "capsule2/biases is [5, 16], should be [3, 16]",
    ),
    (
        {"model": "baseline"},
        {"model": "capsule"},
        "model=baseline is in the checkpoint, capsule was asked for",
        "unexpected: fc1/weights [1536, 1024]",
    ),
    (
        {"model": "capsule"},
        {"model": "baseline"},
        "model=capsule is in the checkpoint, baseline was asked for",
        "missing: softmax_layer/biases [3]",
    ),
]


def shapes_with_step(settings):
    return {**shapes_of(architecture_of(**settings)), "global_step": ()}


def mismatch(there, asked):
    return describe_mismatch(
        shapes_with_step(there),
        shapes_with_step(asked),
        architecture_of(**asked),
    )


@pytest.mark.parametrize(("there", "asked", "explanation", "line"), EXPLAINED)
def test_wrong_shapes_are_named_and_explained(there, asked, explanation, line):
    lines = mismatch(there, asked)
    assert any(line in listed for listed in lines)
    explanations = [
        listed
        for listed in lines
        if not listed.startswith(("missing", "unexpected", "wrong shape"))
    ]
    assert explanations == ([explanation] if explanation else [])


def test_nothing_is_said_of_a_checkpoint_that_fits():
    for settings in ({}, {"remake": False}, {"model": "baseline"}):
        assert mismatch(settings, settings) == []


def test_every_variable_is_listed():
    there = {"model": "baseline"}
    lines = mismatch(there, {})
    assert lines[0] == (
        "model=baseline is in the checkpoint, capsule was asked for"
    )
    named = {line.split(": ")[1].split(" ")[0] for line in lines[1:]}
    expected = set(shapes_with_step(there)) ^ set(shapes_with_step({}))
    assert named == expected | {"conv1/weights", "conv1/biases"}


def test_two_settings_at_once_are_explained():
    there = {"num_prime_capsules": 3, "depth": 3, "remake": False}
    lines = mismatch(there, {})
    assert lines[:3] == [
        "depth=3 is in the checkpoint, 1 was asked for",
        "num_prime_capsules=3 is in the checkpoint, 2 was asked for",
        "remake=False is in the checkpoint, True was asked for",
    ]


def test_shapes_that_no_network_has_are_no_error():
    shapes = {
        "conv1/weights": (),
        "conv_capsule1/weights": (1,),
        "conv_capsule1/biases": (0, 8),
        "capsule2/biases": (),
    }
    asked = architecture_of()
    lines = describe_mismatch(shapes, shapes_of(asked), asked)
    assert "wrong shape: conv_capsule1/biases is [0, 8], should be " in (
        "\n".join(lines)
    )
