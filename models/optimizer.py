"""The reference's optimiser: Adam under an exponentially decaying rate."""

import keras
from keras import ops

SMALLEST_LEARNING_RATE = 1e-6
ADAM_BETAS = (0.9, 0.999)
ADAM_EPSILON = 1e-8
# By which the loss is multiplied, and the gradients divided, so that small
# gradients do not vanish in float16: those of the default network's weights
# have medians of 2e-7 to 7e-4 and a maximum of 2e-3, the baseline's a first
# maximum of about 3. A constant, so that the optimiser's state, and a
# checkpoint, is the same as under other policies.
FLOAT16_LOSS_SCALE = 2.0**10


@keras.saving.register_keras_serializable(package="capsules")
class FlooredExponentialDecay(keras.optimizers.schedules.LearningRateSchedule):
    """max(1e-6, learning_rate * decay_rate ^ (step / decay_steps)).

    The exponent is continuous and the step is the one before the update.

    Args:
      learning_rate: float, the rate at step 0.
      decay_rate: float, the factor for `decay_steps` steps.
      decay_steps: int.
    """

    def __init__(self, learning_rate, decay_rate, decay_steps):
        self.learning_rate = learning_rate
        self.decay_rate = decay_rate
        self.decay_steps = decay_steps

    def __call__(self, step):
        exponent = ops.cast(step, "float32") / self.decay_steps
        rate = self.learning_rate * ops.power(self.decay_rate, exponent)
        return ops.maximum(rate, SMALLEST_LEARNING_RATE)

    def get_config(self):
        return {
            "learning_rate": self.learning_rate,
            "decay_rate": self.decay_rate,
            "decay_steps": self.decay_steps,
        }


def make_schedule(hparams):
    """The learning rate by step, see `FlooredExponentialDecay`.

    Args:
      hparams: `HParams`.
    """
    return FlooredExponentialDecay(
        hparams.learning_rate, hparams.decay_rate, hparams.decay_steps
    )


def make_optimizer(hparams):
    """Adam (beta 0.9 and 0.999, epsilon 1e-8) with the decaying rate.

    Under the policy mixed_float16 it scales the loss by `FLOAT16_LOSS_SCALE`.

    Args:
      hparams: `HParams`.

    Returns:
      `keras.optimizers.Adam`.
    """
    is_float16 = keras.config.dtype_policy().compute_dtype == "float16"
    return keras.optimizers.Adam(
        make_schedule(hparams),
        beta_1=ADAM_BETAS[0],
        beta_2=ADAM_BETAS[1],
        epsilon=ADAM_EPSILON,
        loss_scale_factor=FLOAT16_LOSS_SCALE if is_float16 else None,
    )


def compile_model(model, hparams):
    """Compiles a model with `make_optimizer`.

    Args:
      model: `keras.Model`.
      hparams: `HParams`.
    """
    # The optimiser scales the loss itself where that is needed.
    model.compile(optimizer=make_optimizer(hparams), auto_scale_loss=False)
