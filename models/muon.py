"""The optimizer Muon."""

import math

from keras import ops

from layers.backends import adam_moments, use_full_float32
from models.optimizer import Adam

MUON_MOMENTUM = 0.95
# Root mean square of Adam's updates; Muon's are scaled to it.
MUON_SCALE = 0.2
# Of the polynomial a x + b x^3 + c x^5: five times, it maps (0, 1] close to 1.
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)


def orthogonalize(matrix, scale):
    """Approximates the orthogonal matrix nearest to `matrix`, times `scale`.

    For a float32 `matrix` M = U S V' (singular value decomposition) it returns
    scale * U f(S) V'. f divides S by the Frobenius norm of M; then five
    Newton-Schulz iterations (https://kellerjordan.github.io/posts/muon, Jordan
    2024) map all but the smallest values to between 0.7 and 1.2. The iterations
    update M M' or M' M, the smaller one: only two products, not ten, have the
    factor M. Products in TF32 would give a relative error of about 0.1.
    """
    rows, columns = matrix.shape
    product = "ri,rj->ij" if rows >= columns else "ir,jr->ij"
    square = ops.einsum(product, matrix, matrix)
    norm = ops.sqrt(ops.trace(square)) + 5e-9  # zeros stay zeros
    square = square / norm**2
    a, b, c = NEWTON_SCHULZ
    identity = polynomial = ops.eye(min(rows, columns))
    for _ in range(5):
        factor = a * identity + b * square + c * ops.matmul(square, square)
        polynomial = ops.matmul(polynomial, factor)
        square = ops.matmul(factor, ops.matmul(square, factor))
    polynomial = polynomial * (scale / norm)
    if rows >= columns:
        return ops.matmul(matrix, polynomial)
    return ops.matmul(polynomial, matrix)


class Muon(Adam):
    """Muon for kernels with three or more axes, Adam for all other weights.

    The momentum of a kernel becomes a matrix by flattening all axes but the
    last; Muon orthogonalizes it (Jordan 2024). Updates are scaled as by Liu et
    al. 2025 (https://arxiv.org/abs/2502.16982), so that learning rates for Adam
    suit Muon. Muon can continue from Adam's state, and Adam from Muon's state.

    Unlike Keras' Muon, this one leaves dense kernels to Adam, to save time.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        use_full_float32()

    def update_step(self, gradient, variable, learning_rate):
        if len(variable.shape) < 3:
            super().update_step(gradient, variable, learning_rate)
            return
        gradient = ops.cast(gradient, variable.dtype)
        momentum, velocity = adam_moments(self, variable)
        share, change = 1 - MUON_MOMENTUM, ops.square(gradient) - velocity
        self.assign_add(velocity, (1 - self.beta_2) * change)
        self.assign_add(momentum, share * (gradient - momentum))
        # Nesterov momentum: the momentum after another step of this gradient.
        direction = momentum + share * (gradient - momentum)
        matrix = ops.reshape(direction, (-1, variable.shape[-1]))
        rate = ops.cast(learning_rate, variable.dtype)
        scale = rate * MUON_SCALE * math.sqrt(max(matrix.shape))
        update = orthogonalize(matrix, scale)
        self.assign_sub(variable, ops.reshape(update, variable.shape))
