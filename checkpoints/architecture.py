"""Which network it is: what a checkpoint must say so that it can be rebuilt."""

import dataclasses

from input_data.features import ImageShape
from models.hparams import BaseHParams, parse_overrides
from models.registry import build_model, model_class
from old.errors import UserError
from old.fields import meanings
from old.text import shortened

DEFAULT_MODEL = "capsule"
# Checkpoints were once written with the hyper-parameters of all models, these
# among them, whatever the model.
_ONCE_OF_ALL = {
    "class_atoms",
    "conv_channels",
    "leaky",
    "num_prime_capsules",
    "primary_atoms",
    "remake",
    "routing",
}


@dataclasses.dataclass(frozen=True)
class Architecture:
    """A network, up to the values of its weights.

    Attributes:
      model: string, a key of `models.registry.MODELS`.
      shape: `ImageShape`, the images and number of classes.
      num_targets: int, how many objects an image shows.
      hparams: the model's `HParams`; those that only matter for training
        included.
    """

    model: str
    shape: ImageShape
    num_targets: int
    hparams: BaseHParams

    @classmethod
    def from_config(cls, config, spec):
        """The network that a job's settings and its data describe.

        Args:
          config: `Config`.
          spec: `features.Spec`.

        Raises:
          UserError: for hyper-parameters that are unknown or out of range.
        """
        return cls.from_strings(
            config.model or DEFAULT_MODEL,
            spec.shape,
            spec.num_targets,
            config.hparams_override,
        )

    @classmethod
    def from_strings(cls, model, shape, num_targets, overrides):
        """The network of a model's name and a string of hyper-parameters.

        Raises:
          UserError: for hyper-parameters that are unknown or out of range.
        """
        hparams_class = model_class(model).HParams
        values = parse_overrides(hparams_class, overrides)
        return cls(model, shape, num_targets, hparams_class(**values))

    @property
    def network_hparams(self):
        """Names of the hyper-parameters that matter to the network itself."""
        return [
            name
            for name, (_, _, meaning) in meanings(self.hparams).items()
            if meaning.network
        ]

    @property
    def takes_any_size(self):
        """Whether the same weights are for images of every size."""
        return model_class(self.model).takes_any_size(self.hparams)

    @property
    def num_weights(self):
        """How many weights the network has."""
        return model_class(self.model).num_weights(self.shape, self.hparams)

    def require_evaluable(self, config):
        """Raises UserError for evaluations that its outputs are not for.

        Args:
          config: `Config`.
        """
        if config.crops > 1 and not model_class(self.model).has_class_capsules:
            raise UserError(
                f"--crops is for models of capsules: what model {self.model} "
                "gives has no scale to add up"
            )

    def build(self, seed=0):
        """The `keras.Model`, with initial weights of the seed."""
        return build_model(
            self.model, self.shape, self.num_targets, self.hparams, seed
        )

    def make_schedule(self, max_steps):
        """The learning rate by step of a training of so many steps."""
        return model_class(self.model).make_schedule(self.hparams, max_steps)

    def tf1_variables(self):
        """The weights that a TF1 checkpoint of it has, by their names there.

        Raises:
          UserError: for a model that the reference does not have.
        """
        variables = model_class(self.model).tf1_variables(
            self.shape, self.hparams
        )
        if variables is None:
            raise UserError(
                f"model {self.model} has no TF1 checkpoints: the reference "
                "does not have it"
            )
        return variables

    def to_json(self):
        """The architecture as a dict for json."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, values):
        """The inverse of `to_json`.

        Raises:
          KeyError, TypeError, UserError: if `values` are not of that form.
        """
        hparams_class = model_class(values["model"]).HParams
        known = meanings(hparams_class)
        hparams = {
            name: value
            for name, value in values["hparams"].items()
            if name in known or name not in _ONCE_OF_ALL
        }
        for name, value in hparams.items():
            kind = known[name][0] if name in known else type(value)
            if type(value) not in ((int, float) if kind is float else (kind,)):
                raise TypeError(f"{name} is {shortened(value)}")
        return cls(
            model=values["model"],
            shape=ImageShape(**values["shape"]),
            num_targets=values["num_targets"],
            hparams=hparams_class(**hparams),
        )

    def network_differences(self, other):
        """What makes two networks different ones.

        Returns:
          List of (name, value here, value in `other`).
        """
        return _differences(self._network(), other._network())

    def training_differences(self, other):
        """Hyper-parameters that differ though the network is the same.

        Returns:
          List of (name, value here, value in `other`).
        """
        here, there = (dataclasses.asdict(a.hparams) for a in (self, other))
        return [
            difference
            for difference in _differences(here, there)
            if difference[0] not in self.network_hparams
        ]

    def _network(self):
        shape = dataclasses.asdict(self.shape)
        if self.takes_any_size:
            del shape["height"], shape["width"]
        return {
            "model": self.model,
            **shape,
            "num_targets": self.num_targets,
            **{
                name: getattr(self.hparams, name)
                for name in self.network_hparams
            },
        }


def _differences(here, there):
    return [
        (name, here[name], there[name])
        for name in here
        if name in there and here[name] != there[name]
    ]
