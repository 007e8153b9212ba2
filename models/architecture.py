"""The description of a network, from which it is built."""

import concurrent.futures
import dataclasses
import math

import keras
import psutil

from common.errors import UserError
from common.flags import flag_specs
from input_data.keys import ImageShape
from models.hparams import BaseHParams, parse_overrides
from models.table import find_model


@dataclasses.dataclass(frozen=True)
class Architecture:
    """Describes a network, without the values of its weights."""

    model: str  # a name of `--model`
    shape: ImageShape
    num_targets: int
    hparams: BaseHParams

    @classmethod
    def from_config(cls, config, shape, num_targets, saved=None):
        """The network that a `Config`'s `model` and `hparams_override` give.

        Missing values come from `saved`, an `Architecture`. Without it, or for
        the hyper-parameters of another model, they are the defaults.
        """
        model = config.model or (saved.model if saved else "capsule")
        hparams_class = find_model(model).hparams
        is_saved = saved is not None and saved.model == model
        hparams = saved.hparams if is_saved else hparams_class()
        overrides = parse_overrides(hparams_class, config.hparams_override)
        hparams = dataclasses.replace(hparams, **overrides)
        return cls(model, shape, num_targets, hparams)

    def settings(self):
        """Dict of all settings that define the network."""
        shape = dataclasses.asdict(self.shape)
        if find_model(self.model).fits_any_size(self.hparams):
            del shape["height"], shape["width"]
        hparams = {
            name: getattr(self.hparams, name)
            for name, spec in flag_specs(self.hparams).items()
            if spec.defines_network
        }
        return {"model": self.model, **shape, **hparams}

    def build(self, seed=0, copies=2):
        """The network with all its weights, a `classifier.Classifier`.

        Seeds the global random generators of Python, NumPy and the backend, so
        that Keras draws the same weights in all processes of a cluster. Raises
        UserError if the images are too small for the network, or the memory is
        too small for `copies` copies of the weights.
        """
        # In a thread of its own, Keras counts layer names from 1 and drops the
        # variables with the thread.
        with concurrent.futures.ThreadPoolExecutor(1) as executor:
            needed = 4 * copies * executor.submit(self._num_weights).result()
        if needed > (memory := psutil.virtual_memory().total):
            raise UserError(
                f"model {self.model} needs {needed / 1e9:,.0f} GB for "
                f"{copies} copies of its weights; this machine has "
                f"{memory / 1e9:,.0f} GB"
            )
        keras.utils.set_random_seed(seed)
        return self._create()

    def _create(self):
        row = find_model(self.model)
        # TensorFlow allows no colon in names.
        name = self.model.rpartition(":")[2]
        arguments = self.shape, self.num_targets, self.hparams
        return row.classifier(row, *arguments, name=name)

    def _num_weights(self):
        """The number of weights, found without creating their values."""
        try:
            with keras.StatelessScope(initialize_variables=False):
                return sum(math.prod(w.shape) for w in self._create().weights)
        except ValueError as error:
            size = f"{self.shape.height}x{self.shape.width}"
            raise UserError(
                f"images of {size} do not fit model {self.model}: they may be "
                "too small (--debug shows the error)"
            ) from error
