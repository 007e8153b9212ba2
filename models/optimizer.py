"""The optimizers Adam and Muon, and the learning-rate schedule."""

import math

import keras
from keras import backend, ops
from keras.optimizers import schedules

from layers.backends import (
    adam_moments,
    is_mirrored,
    is_on_cpu,
    use_full_float32,
)

# Keeps gradients from vanishing under mixed_float16 (medians are 2e-7 to 7e-4).
# It is constant, so that the optimizer's state is the same for all policies.
FLOAT16_LOSS_SCALE = 2.0**10
MUON_MOMENTUM = 0.95
# Root mean square of Adam's updates; Muon's are scaled to it.
MUON_SCALE = 0.2


class FlooredExponentialDecay(schedules.ExponentialDecay):
    """Keras' exponential decay with a smallest learning rate."""

    def __init__(self, *args, smallest=1e-6, **kwargs):
        super().__init__(*args, **kwargs)
        self.smallest = smallest

    def __call__(self, step):
        return ops.maximum(super().__call__(step), self.smallest)


class Adam(keras.optimizers.Adam):
    """Keras' Adam; on TensorFlow, a single operation updates a variable.

    On CPUs this saves 4% of a training step of the default network.
    """

    def update_step(self, gradient, variable, learning_rate):
        # The operation does not update mirrored variables.
        if backend.backend() != "tensorflow" or is_mirrored():
            super().update_step(gradient, variable, learning_rate)
            return
        import tensorflow as tf  # other backends do not need it

        momentum, velocity = adam_moments(self, variable)
        step = ops.cast(self.iterations + 1, variable.dtype)
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=momentum.value.handle,
            v=velocity.value.handle,
            beta1_power=ops.power(self.beta_1, step),
            beta2_power=ops.power(self.beta_2, step),
            lr=ops.cast(learning_rate, variable.dtype),
            beta1=self.beta_1,
            beta2=self.beta_2,
            epsilon=self.epsilon,
            grad=ops.cast(gradient, variable.dtype),
        )


class Muon(Adam):
    """Muon for kernels with three or more axes, Adam for all other weights.

    The momentum of a kernel becomes a matrix by flattening all axes but the
    last; Muon orthogonalizes it (Jordan 2024). Updates are scaled as by Liu et
    al. 2025 (https://arxiv.org/abs/2502.16982), so that learning rates for Adam
    suit Muon. Either can continue from the other's state. Unlike Keras' Muon,
    this one leaves dense kernels to Adam, to save time.
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


OPTIMIZERS = {"adam": Adam, "muon": Muon}


def orthogonalize(matrix, scale):
    """Approximates the orthogonal matrix nearest to `matrix`, times `scale`.

    For a float32 `matrix` M = U S V' (singular value decomposition) it returns
    scale * U f(S) V'. f divides S by the Frobenius norm of M; then five
    Newton-Schulz iterations (https://kellerjordan.github.io/posts/muon, Jordan
    2024) map all but the smallest values to between 0.7 and 1.2. They update
    the smaller one of M M' and M' M: only two products have the factor M.
    Products in TF32 would give a relative error of about 0.1.
    """
    rows, columns = matrix.shape
    product = "ri,rj->ij" if rows >= columns else "ir,jr->ij"
    square = ops.einsum(product, matrix, matrix)
    norm = ops.sqrt(ops.trace(square)) + 5e-9  # zeros stay zeros
    square = square / norm**2
    # Five times, the polynomial a x + b x^3 + c x^5 maps (0, 1] close to 1.
    a, b, c = 3.4445, -4.7750, 2.0315
    identity = polynomial = ops.eye(min(rows, columns))
    for _ in range(5):
        factor = a * identity + b * square + c * ops.matmul(square, square)
        polynomial = ops.matmul(polynomial, factor)
        square = ops.matmul(factor, ops.matmul(square, factor))
    polynomial = polynomial * (scale / norm)
    if rows >= columns:
        return ops.matmul(matrix, polynomial)
    return ops.matmul(polynomial, matrix)


def make_schedule(model, max_steps=None):
    """The learning-rate schedule that `schedule` of the hyper-parameters names.

    "exponential" is max(1e-6, learning_rate * decay_rate^(step / decay_steps));
    `schedule` of the model's row can change it. "cosine" and "linear" require
    `max_steps` and reach 0 at this step.
    """
    hparams = model.hparams
    rate = hparams.learning_rate
    if hparams.schedule == "exponential":
        decay = rate, hparams.decay_steps, hparams.decay_rate
        return FlooredExponentialDecay(*decay, **model.row.schedule)
    if hparams.schedule == "cosine":
        return schedules.CosineDecay(rate, max_steps)
    return schedules.PolynomialDecay(rate, max_steps, 0.0)


def make_optimizer(model, max_steps=None):
    """The optimizer of the hyper-parameters; Adam has the reference's betas."""
    hparams = model.hparams
    is_float16 = keras.config.dtype_policy().compute_dtype == "float16"
    optimizer = OPTIMIZERS[hparams.optimizer](
        make_schedule(model, max_steps),
        epsilon=model.row.adam_epsilon,
        loss_scale_factor=FLOAT16_LOSS_SCALE if is_float16 else None,
    )
    optimizer.use_ema = hparams.ema > 0
    optimizer.ema_momentum = hparams.ema
    return optimizer


def jit_compile(model):
    """The `jit_compile` argument of `compile`: a bool, or "auto"."""
    if backend.backend() != "tensorflow":
        return "auto"
    # XLA does not compile mirrored variables.
    if model.row.xla and not is_mirrored():
        return True
    # Keras' "auto" would also consider hidden GPUs.
    return False if is_on_cpu() else "auto"


def compile_model(model, max_steps=None):
    """Compiles a model with its optimizer and creates the optimizer's state."""
    optimizer = make_optimizer(model, max_steps)
    # The optimizer scales the loss itself where necessary.
    options = {"auto_scale_loss": False, "jit_compile": jit_compile(model)}
    model.compile(optimizer, **options)
    optimizer.build(model.trainable_variables)
