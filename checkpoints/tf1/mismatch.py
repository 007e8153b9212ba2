"""What is wrong with a TF1 checkpoint for a network, and what explains it.

A TF1 checkpoint says nothing of its network but the names and shapes of its
variables. Some settings can be read off them; `leaky`, `routing` and the
number of targets cannot.
"""

import dataclasses

from models.registry import model_class

# Square images up to this size are tried as an explanation.
_LARGEST_IMAGE = 128


def describe_mismatch(shapes, expected, architecture):
    """Lists every variable that is missing, unexpected or of a wrong shape.

    Args:
      shapes: dict from name to shape, all variables of the checkpoint.
      expected: dict from name to shape, those that should be there.
      architecture: `Architecture` that was asked for.

    Returns:
      List of strings, empty if the checkpoint is as expected; the settings
      that would explain the rest, if any are found, come first.
    """
    lines = [
        f"missing: {name} {list(expected[name])}"
        for name in sorted(expected.keys() - shapes.keys())
    ]
    lines += [
        f"unexpected: {name} {list(shapes[name])}"
        for name in sorted(shapes.keys() - expected.keys())
    ]
    lines += [
        f"wrong shape: {name} is {list(shapes[name])}, should be "
        f"{list(expected[name])}"
        for name in sorted(expected.keys() & shapes.keys())
        if tuple(shapes[name]) != tuple(expected[name])
    ]
    return _explanations(shapes, architecture) + lines if lines else []


def _explanations(shapes, asked):
    """Settings of the checkpoint's network that are not those asked for."""
    found, sizes = _infer(shapes, asked)
    lines = [
        f"{name}={there} is in the checkpoint, {here} was asked for"
        for name, here, there in asked.network_differences(found)
    ]
    if sizes:
        listed = " or ".join(f"{size}x{size}" for size in sizes)
        lines.append(
            f"images of {listed} fit the checkpoint, "
            f"{asked.shape.height}x{asked.shape.width} were asked for"
        )
    return lines


def _infer(shapes, asked):
    """The network of a checkpoint, as like `asked` as its shapes allow.

    Returns:
      Pair of an `Architecture` with the height and width of `asked`, and the
      list of the sizes of square images that fit where those do not.
    """
    known = _read_off(shapes, asked)
    paddings = sorted(
        ("VALID", "SAME"), key=lambda padding: padding != asked.hparams.padding
    )
    candidates = [
        dataclasses.replace(
            known,
            hparams=dataclasses.replace(known.hparams, padding=padding),
        )
        for padding in paddings
    ]
    for candidate in candidates:
        if _fits(shapes, candidate):
            return candidate, []
    for candidate in candidates:
        sizes = [
            size
            for size in range(1, _LARGEST_IMAGE + 1)
            if _fits(shapes, _resized(candidate, size))
        ]
        if sizes:
            return candidate, sizes
    return known, []


def _read_off(shapes, asked):
    """`asked`, with what single variables of the checkpoint tell."""
    model = asked.model
    if "conv_capsule1/weights" in shapes:
        model = "capsule"
    elif "fc1/weights" in shapes:
        model = "baseline"
    outputs = "capsule2" if model == "capsule" else "softmax_layer"

    def size(name, axis, default):
        shape = shapes.get(name, ())
        return (shape[axis] if len(shape) > axis else 0) or default

    hparams = asked.hparams
    if model != asked.model:
        hparams = model_class(model).HParams(padding=hparams.padding)
    if model == "capsule":
        hparams = dataclasses.replace(
            hparams,
            num_prime_capsules=size(
                "conv_capsule1/biases", 0, hparams.num_prime_capsules
            ),
            remake=any(name.startswith("recons/") for name in shapes),
        )
    shape = dataclasses.replace(
        asked.shape,
        depth=size("conv1/weights", 2, asked.shape.depth),
        num_classes=size(f"{outputs}/biases", 0, asked.shape.num_classes),
    )
    return dataclasses.replace(asked, model=model, shape=shape, hparams=hparams)


def _resized(architecture, size):
    shape = dataclasses.replace(architecture.shape, height=size, width=size)
    return dataclasses.replace(architecture, shape=shape)


def _fits(shapes, architecture):
    return all(
        shapes.get(name) == variable.shape
        for name, variable in architecture.tf1_variables().items()
    )
