"""The reference's optimiser: Adam under an exponentially decaying rate."""

import keras
from keras import ops

SMALLEST_LEARNING_RATE = 1e-6
ADAM_BETAS = (0.9, 0.999)
ADAM_EPSILON = 1e-8


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


def make_optimizer(hparams):
    """Adam (beta 0.9 and 0.999, epsilon 1e-8) with the decaying rate.

    Args:
      hparams: `HParams`.

    Returns:
      `keras.optimizers.Adam`.
    """
    return keras.optimizers.Adam(
        FlooredExponentialDecay(
            hparams.learning_rate, hparams.decay_rate, hparams.decay_steps
        ),
        beta_1=ADAM_BETAS[0],
        beta_2=ADAM_BETAS[1],
        epsilon=ADAM_EPSILON,
    )
