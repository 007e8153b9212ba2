"""The optimisers, Adam as in the reference and Muon, and their schedules."""

import math

import keras
from keras import backend, ops

from layers.utils import is_mirrored, use_full_float32
from old.errors import UserError

SMALLEST_LEARNING_RATE = 1e-6
ADAM_BETAS = (0.9, 0.999)
ADAM_EPSILON = 1e-8
MUON_MOMENTUM = 0.95
# The root mean square of Adam's updates, by which Muon's are as large.
MUON_SCALE = 0.2
# Of x (a + b x^2 + c x^4), which applied five times takes what is in (0, 1]
# near 1.
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
# By which the loss is multiplied, and the gradients divided, so that small
# gradients do not vanish in float16: those of the default network's weights
# have medians of 2e-7 to 7e-4 and a maximum of 2e-3, the baseline's a first
# maximum of about 3. A constant, so that the optimiser's state, and a
# checkpoint, is the same as under other policies.
FLOAT16_LOSS_SCALE = 2.0**10


@keras.saving.register_keras_serializable(package="capsules")
class FlooredExponentialDecay(keras.optimizers.schedules.ExponentialDecay):
    """Keras' exponential decay, but not below a floor.

    The step is the one before the update.

    Args:
      *args: of `keras.optimizers.schedules.ExponentialDecay`.
      smallest: float, the floor.
      **kwargs: of the same.
    """

    def __init__(self, *args, smallest=SMALLEST_LEARNING_RATE, **kwargs):
        super().__init__(*args, **kwargs)
        self.smallest = smallest

    def __call__(self, step):
        return ops.maximum(super().__call__(step), self.smallest)

    def get_config(self):
        return {**super().get_config(), "smallest": self.smallest}


def make_schedule(hparams, max_steps=None):
    """The learning rate by step that `hparams.schedule` names.

    Args:
      hparams: `hparams.BaseHParams`.
      max_steps: int, where cosine and linear reach 0.

    Returns:
      `keras.optimizers.schedules.LearningRateSchedule`.

    Raises:
      UserError: for a schedule that ends without `max_steps`.
    """
    if hparams.schedule == "exponential":
        return FlooredExponentialDecay(
            hparams.learning_rate, hparams.decay_steps, hparams.decay_rate
        )
    if max_steps is None:
        raise UserError(
            f"schedule={hparams.schedule} ends at --max_steps, which is not "
            "known here"
        )
    if hparams.schedule == "cosine":
        return keras.optimizers.schedules.CosineDecay(
            hparams.learning_rate, max_steps
        )
    return keras.optimizers.schedules.PolynomialDecay(
        hparams.learning_rate, max_steps, end_learning_rate=0.0
    )


@keras.saving.register_keras_serializable(package="capsules")
class Adam(keras.optimizers.Adam):
    """Keras' Adam; with TensorFlow by the operation that the reference's calls.

    It reads and writes each variable once, where Keras takes a pass over
    memory for every sum and product.
    """

    def update_step(self, gradient, variable, learning_rate):
        # The operation knows nothing of variables that several devices have.
        if backend.backend() != "tensorflow" or is_mirrored():
            super().update_step(gradient, variable, learning_rate)
            return
        import tensorflow as tf

        index = self._get_variable_index(variable)
        step = ops.cast(self.iterations + 1, variable.dtype)
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self._momentums[index].value.handle,
            v=self._velocities[index].value.handle,
            beta1_power=ops.power(self.beta_1, step),
            beta2_power=ops.power(self.beta_2, step),
            lr=ops.cast(learning_rate, variable.dtype),
            beta1=self.beta_1,
            beta2=self.beta_2,
            epsilon=self.epsilon,
            grad=ops.cast(gradient, variable.dtype),
        )


def orthogonalised(matrix, scale):
    """The nearest matrix of orthonormal rows or columns, about, times a scale.

    For U S V' it is U f(S) V', where f takes all but the smallest of what is
    in (0, 1] to between 0.7 and 1.2: five of Newton's and Schulz's iterations
    (Jordan 2024). They are done with the product of the matrix and its
    transpose, whose side is the shorter one: a long matrix is multiplied
    twice, not ten times. That needs products of full float32, as `Muon`
    asks for: by TF32 the result is off by a tenth, by bfloat16 the iterations
    diverge.

    Args:
      matrix: float32 tensor [rows, columns].
      scale: float32 scalar.

    Returns:
      float32 tensor of the same shape.
    """
    rows, columns = matrix.shape
    product = "ri,rj->ij" if rows >= columns else "ir,jr->ij"
    square = ops.einsum(product, matrix, matrix)
    norm = ops.sqrt(ops.trace(square)) + 5e-9  # zeros stay zeros
    square = square / norm**2
    a, b, c = NEWTON_SCHULZ
    identity = turned = ops.eye(min(rows, columns))
    for _ in range(5):
        factor = a * identity + b * square + c * ops.matmul(square, square)
        turned = ops.matmul(turned, factor)
        square = ops.matmul(factor, ops.matmul(square, factor))
    turned = turned * (scale / norm)
    if rows >= columns:
        return ops.matmul(matrix, turned)
    return ops.matmul(turned, matrix)


@keras.saving.register_keras_serializable(package="capsules")
class Muon(Adam):
    """Muon for kernels of three axes and more, Adam for the rest.

    The momentum of a kernel, as a matrix whose columns are its last axis, is
    made orthogonal, so that no direction of its space is learned much before
    another (Jordan 2024), and scaled as Liu et al. 2025 (arXiv:2502.16982) do,
    so that Adam's learning rates serve. The columns are the outputs of a
    convolution and of `layers.Capsule`; of self-attention only the atoms of a
    class, of matrix capsules those of a pose's row: little is gained there.

    Dense kernels stay with Adam: to make those of a decoder orthogonal takes
    0.2 s on two CPU cores. Keras' own Muon is for dense kernels alone.

    To make one is to compute in full float32 in the whole process, see
    `use_full_float32`.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        use_full_float32()

    def update_step(self, gradient, variable, learning_rate):
        if len(variable.shape) < 3:
            super().update_step(gradient, variable, learning_rate)
            return
        gradient = ops.cast(gradient, variable.dtype)
        index = self._get_variable_index(variable)
        momentum, velocity = self._momentums[index], self._velocities[index]
        # Means, as Adam's: either optimiser goes on from the other's state.
        share, change = 1 - MUON_MOMENTUM, ops.square(gradient) - velocity
        self.assign_add(velocity, (1 - self.beta_2) * change)
        self.assign_add(momentum, share * (gradient - momentum))
        # Nesterov's: where the momentum will be after the next step.
        direction = momentum + share * (gradient - momentum)
        matrix = ops.reshape(direction, (-1, variable.shape[-1]))
        rate = ops.cast(learning_rate, variable.dtype)
        scale = rate * MUON_SCALE * math.sqrt(max(matrix.shape))
        update = orthogonalised(matrix, scale)
        self.assign_sub(variable, ops.reshape(update, variable.shape))


OPTIMIZERS = {"adam": Adam, "muon": Muon}


def make_optimizer(name, schedule, epsilon=ADAM_EPSILON):
    """Adam (beta 0.9 and 0.999), or Muon with it.

    Under the policy mixed_float16 it scales the loss by `FLOAT16_LOSS_SCALE`.

    Args:
      name: string, a key of `OPTIMIZERS`.
      schedule: the learning rate by step.
      epsilon: float, Adam's; that of the reference by default.

    Returns:
      `Adam` or `Muon`.
    """
    is_float16 = keras.config.dtype_policy().compute_dtype == "float16"
    return OPTIMIZERS[name](
        schedule,
        beta_1=ADAM_BETAS[0],
        beta_2=ADAM_BETAS[1],
        epsilon=epsilon,
        loss_scale_factor=FLOAT16_LOSS_SCALE if is_float16 else None,
    )


def compile_model(model, max_steps=None):
    """Compiles a model with its own optimiser, whose variables it makes.

    Args:
      model: `classifier.Classifier`.
      max_steps: int, steps of the whole training, for schedules that end.
    """
    made = model.make_optimizer(model.hparams, max_steps)
    # The optimiser scales the loss itself where that is needed.
    model.compile(
        optimizer=made,
        auto_scale_loss=False,
        jit_compile=model.xla,
    )
    made.build(model.trainable_variables)
