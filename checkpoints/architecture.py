"""Which network it is: what a checkpoint must say so that it can be rebuilt."""

import dataclasses

from input_data.features import ImageShape
from models.hparams import HParams, parse_overrides
from models.registry import MODELS, build_model

DEFAULT_MODEL = "capsule"


@dataclasses.dataclass(frozen=True)
class Architecture:
    """A network, up to the values of its weights.

    Attributes:
      model: string, a key of `models.registry.MODELS`.
      shape: `ImageShape`, the images and number of classes.
      num_targets: int, how many objects an image shows.
      hparams: `HParams`; those that only matter for training included.
    """

    model: str
    shape: ImageShape
    num_targets: int
    hparams: HParams

    @classmethod
    def asked_for(cls, config, spec):
        """The network that a job's settings and its data describe.

        Args:
          config: `Config`.
          spec: `features.Spec`.

        Raises:
          UserError: for hyper-parameters that are unknown or out of range.
        """
        return cls(
            model=config.model or DEFAULT_MODEL,
            shape=spec.shape,
            num_targets=spec.num_targets,
            hparams=HParams(**parse_overrides(config.hparams_override)),
        )

    @property
    def network_hparams(self):
        """Names of the hyper-parameters that matter to the network itself."""
        return MODELS[self.model].network_hparams

    def build(self, seed=0):
        """The `keras.Model`, with initial weights of the seed."""
        return build_model(
            self.model, self.shape, self.num_targets, self.hparams, seed
        )

    def to_json(self):
        """The architecture as a dict for json."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, values):
        """The inverse of `to_json`.

        Raises:
          KeyError, TypeError, UserError: if `values` are not of that form.
        """
        return cls(
            model=values["model"],
            shape=ImageShape(**values["shape"]),
            num_targets=values["num_targets"],
            hparams=HParams(**values["hparams"]),
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
        names = set(dataclasses.asdict(self.hparams)) - set(
            self.network_hparams
        )
        return _differences(
            {name: getattr(self.hparams, name) for name in sorted(names)},
            {name: getattr(other.hparams, name) for name in sorted(names)},
        )

    def _network(self):
        return {
            "model": self.model,
            **dataclasses.asdict(self.shape),
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
