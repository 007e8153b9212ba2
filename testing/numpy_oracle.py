"""The layers in NumPy float64: for tests only.

The functions follow the formulas, without code of `layers`. Axis 0 of all
arguments runs over P independent copies, so that `numerical_gradients` can
perturb each entry of an argument in one call.
"""

import numpy as np

# Down and right: the eight neighbors of a pixel, counterclockwise.
DIRECTIONS = [(0, 1), (-1, 1), (-1, 0), (-1, -1)]
DIRECTIONS += [(-down, -right) for down, right in DIRECTIONS]


def squash(s, constant=1, epsilon=0):
    """[..., A]: s / n * n^2 / (constant + n^2), where n^2 = |s|^2 + epsilon."""
    norm = np.sqrt((s**2).sum(axis=-1, keepdims=True) + epsilon)
    return s / norm * norm**2 / (constant + norm**2)


def softmax(logits, leaky=False):
    """[..., O]; leaky: one more logit of 0, dropped afterwards."""
    if leaky:
        zeros = np.zeros((*logits.shape[:-1], 1))
        logits = np.concatenate([zeros, logits], axis=-1)
    exponentials = np.exp(logits)
    shares = exponentials / exponentials.sum(axis=-1, keepdims=True)
    return shares[..., 1:] if leaky else shares


def routing_steps(
    votes,
    biases,
    num_routing,
    leaky,
    logits="add",
    compare="squashed",
    squash_constant=1,
    squash_epsilon=0,
):
    """[P, I, O, A], [P, O, A] -> [P, O, A] and couplings [R, P, I, O].

    With `logits` "replace", agreements replace the logits. With `compare`
    "direction", votes are compared with s / |s| instead of squash(s).
    """
    b, all_couplings = np.zeros(votes.shape[:-1]), []
    for _ in range(num_routing):
        couplings = softmax(b, leaky)
        all_couplings.append(couplings)
        s = biases + (couplings[..., None] * votes).sum(axis=1)
        v = compared = squash(s, squash_constant, squash_epsilon)
        if compare == "direction":
            compared = s / np.sqrt((s**2).sum(axis=-1, keepdims=True))
        agreement = (votes * compared[:, None]).sum(axis=-1)
        b = agreement + (logits == "add") * b
    return v, np.stack(all_couplings)


def capsule(inputs, weights, biases, *rule, part=0, **squash):
    """[P, I, a], [P, I or 1, a, O * A], [P, O, A] -> [P, O, A].

    With `part=1` the couplings [R, P, I, O].
    """
    votes = (inputs[..., None] * weights).sum(axis=2)
    votes = votes.reshape(*inputs.shape[:2], *biases.shape[1:])
    return routing_steps(votes, biases, *rule, **squash)[part]


def conv_slim_capsule(
    inputs, weights, biases, strides, padding, num_routing, leaky, part=0
):
    """[P, H, W, I, a], [P, k, k, a, O * A], [P, O, A] -> [P, h, w, O, A].

    With `part=1` the couplings [R, P, h, w, I, O].
    """
    by_type = np.moveaxis(inputs, 3, 0)
    votes = [convolution(x, weights, strides, padding) for x in by_type]
    copies, *grid, _ = votes[0].shape
    outputs, at_once = biases.shape[1:], copies * np.prod(grid)
    votes = np.stack(votes, axis=3).reshape(at_once, -1, *outputs)
    biases = np.repeat(biases, np.prod(grid), axis=0)
    found = routing_steps(votes, biases, num_routing, leaky)[part]
    before, after = found.shape[:part], found.shape[part + 1 :]
    return found.reshape(*before, copies, *grid, *after)


def classification_loss(name, labels, logits):
    """[..., B, classes] -> [..., B]: margin, softmax, sigmoid."""
    target = labels.astype("float64")
    if name == "margin":
        present = np.maximum(0, 0.9 - logits) ** 2
        absent = np.maximum(0, logits - 0.1) ** 2
        cost = 0.5 * target * present + 0.25 * (1 - target) * absent
        return cost.mean(axis=-1)
    if name == "softmax":
        log_sum = np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        return (target * (log_sum - logits)).sum(axis=-1)
    p = 1 / (1 + np.exp(-logits))
    cost = target / 2 * np.log(p) + (1 - target / 2) * np.log(1 - p)
    return -cost.mean(axis=-1)


def added_zeros(length, size, strides, padding):
    """Zeros before and after an axis; SAME gives ceil(length / strides)."""
    if padding.upper() == "VALID":
        return 0, 0
    positions = -(-length // strides)
    total = max((positions - 1) * strides + size - length, 0)
    return total // 2, total - total // 2


def windows(images, size, strides, padding="VALID"):
    """[P, H, W, ...] -> [P, h, w, k, l, ...]: the field of each position.

    Without a size, the field is the whole image.
    """
    rule = size, strides, padding
    sides = [added_zeros(n, *rule) for n in images.shape[1:3]]
    images = np.pad(images, [(0, 0), *sides, *[(0, 0)] * (images.ndim - 3)])
    sizes = (size, size) if size else images.shape[1:3]
    view = np.lib.stride_tricks.sliding_window_view(images, sizes, (1, 2))
    return np.moveaxis(view[:, ::strides, ::strides], (-2, -1), (3, 4))


def convolution(images, kernel, strides, padding):
    """[B, H, W, C], [k, k, C, O] or B of them -> [B, h, w, O], tap by tap."""
    size, out = kernel.shape[-3], 0
    fields = windows(images, size, strides, padding)
    for y, x in np.ndindex(size, size):
        out = out + fields[:, :, :, y, x] @ kernel[..., None, y, x, :, :]
    return out


def decoder(capsules, labels, weights):
    """[B, O, A], [B] -> [B, pixels]: the labeled capsules, dense layers."""
    rows = np.arange(len(capsules))
    masked = np.zeros(capsules.shape)
    masked[rows, labels] = capsules[rows, labels]
    hidden = masked.reshape(len(capsules), -1)
    for number in range(3):
        hidden = hidden @ weights[2 * number] + weights[2 * number + 1]
        if number < 2:
            hidden = np.maximum(hidden, 0)
    return 1 / (1 + np.exp(-hidden))


def exponential_squash(s):
    """[..., A]: (1 - exp(-|s|)) s / |s|, and 0 where |s| is 0."""
    norm = np.sqrt((s**2).sum(axis=-1, keepdims=True))
    return (1 - np.exp(-norm)) * s / np.where(norm > 0, norm, 1)


def depthwise_capsule(inputs, kernel, bias, atoms):
    """[P, H, W, C], [P, k, l, C], [P, C] -> [P, C / atoms, atoms]."""
    _, rows, columns, _ = kernel.shape
    s = bias + (inputs[:, :rows, :columns] * kernel).sum(axis=(1, 2))
    return exponential_squash(s.reshape(len(s), -1, atoms))


def self_attention_capsule(inputs, weights, biases, part=0):
    """[P, I, a], [P, O, I, a, A], [P, O, I] -> [P, O, A].

    With `part=1` the attention [P, I, O].
    """
    votes = (inputs[:, None, ..., None] * weights).sum(axis=3)
    # The sum of the products of a vote with all votes.
    agreement = (votes * votes.sum(axis=2, keepdims=True)).sum(axis=3)
    agreement /= np.sqrt(votes.shape[-1])
    attention = softmax(agreement.swapaxes(1, 2))
    couplings = attention.swapaxes(1, 2) + biases
    capsules = exponential_squash((couplings[..., None] * votes).sum(axis=2))
    return (capsules, attention)[part]


def numerical_gradients(function, arguments, cotangent, step=1e-5):
    """Gradients of sum(function(*arguments) * cotangent), entry by entry.

    Central differences: each entry of an argument is moved by `step` in both
    directions; all moved copies of the argument are computed by one call.
    """
    gradients = []
    for moved, argument in enumerate(arguments):
        moves = step * np.eye(argument.size).reshape(-1, *argument.shape)
        copies = [
            np.broadcast_to(a, (2 * argument.size, *a.shape)) for a in arguments
        ]
        copies[moved] = np.concatenate([argument + moves, argument - moves])
        values = function(*copies)
        values = (values * cotangent).reshape(len(values), -1).sum(axis=1)
        above, below = np.split(values, 2)
        gradients.append(((above - below) / (2 * step)).reshape(argument.shape))
    return gradients
