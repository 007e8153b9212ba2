"""What a data set is asked for: the data flags, their defaults and bounds."""

import dataclasses

from input_data.features import LARGEST_SIDE
from input_data.registry import (
    DATASETS,
    EMBEDDED,
    is_valid_name,
    valid_names,
)
from input_data.splits import Split
from old.errors import UserError
from old.fields import field, meanings
from old.text import shortened

# Of a job that loads one, for the same data set.
_KEPT = "the checkpoint's"


def _data_flag(default, help_text, **meaning):
    """A field that decides which images there are, and how they look."""
    return field(
        default, help_text, **{"recorded": True, "evaluated": True, **meaning}
    )


@dataclasses.dataclass(frozen=True)
class Options:
    """The data flags; a new one is added here, and to the data sets it is for.

    None stands for "not given": what is meant then depends on the data set.
    """

    augment: bool = _data_flag(
        False,
        "Whether training images of one object are varied as Efficient-CapsNet "
        "has it: half of them turned by up to 30 degrees, all moved within "
        "their margins, squeezed in width by up to a quarter, and a random "
        "square of 4x4 pixels erased. The default of --shift is then 0.",
        evaluated=False,
    )
    color: bool | None = _data_flag(
        None,
        "With --dataset=images: whether images keep their colours; else they "
        "become grey.",
        kept=True,
        default_text=f"{_KEPT}, else false",
    )
    crops: int = _data_flag(
        1,
        "In evaluation on cifar10 and norb: 13 averages what a network says of "
        "the middle and of twelve crops that are moved by 1, 2 and 3 pixels "
        "along the diagonals, the activations of each divided by their sum, as "
        "the paper of matrix capsules does.",
        is_valid=lambda number: number in (1, 13),
        valid="1 or 13",
        recorded=False,
    )
    data_dir: str | None = _data_flag(
        None,
        "Folder with the files of the data set; or PREFIX.tfrecords@10, record "
        "files of pairs in 10 shards, for two targets.",
        recorded=False,
    )
    dataset: str | None = _data_flag(
        None,
        f"Data set: {valid_names()}, where tfds:NAME is an image "
        "classification set of TensorFlow Datasets and images is a folder with "
        "one sub-folder for each class.",
        kept=True,
        is_valid=is_valid_name,
        valid=f"one of {valid_names()}",
        names=tuple(DATASETS),
        default_text=f"{_KEPT}, else mnist with --data_dir, else digits",
    )
    distort: bool | None = _data_flag(
        None,
        "Whether to crop digits by 4 pixels: in training at random, and turned "
        "by up to 15 degrees; else from the middle.",
        kept=True,
        default_text=f"{_KEPT}, else false",
    )
    eval_size: int = _data_flag(
        10000,
        "Examples to evaluate: at most the images or records there are; "
        "overlapping pairs that are made on the fly may be any number.",
        at_least=1,
        at_most=10**9,
        recorded=False,
    )
    image_size: int | None = _data_flag(
        None,
        "With --dataset=images and tfds:NAME: height and width, in pixels, to "
        "which images are resized.",
        at_least=1,
        at_most=LARGEST_SIDE,
        kept=True,
        default_text=f"{_KEPT}, else as they are, if all have one size",
    )
    num_targets: int | None = _data_flag(
        None,
        "Objects in each image, 1 or 2.",
        at_least=1,
        at_most=2,
        recorded=False,
        default_text="1; in evaluation the checkpoint's",
    )
    pad: int | None = _data_flag(
        None,
        "Black pixels to add on each side of a digit.",
        at_least=0,
        at_most=10**5,
        kept=True,
        default_text=f"{_KEPT}, else 0, with two targets 4",
    )
    pairs: str = _data_flag(
        "overlap",
        "With --num_targets=2, how two objects share an image: overlap, merged "
        "as in MultiMNIST; below or beside, for --train=false and any data "
        "set: two test images put together, the second below or beside the "
        "first, so that the image has twice the height or width. A checkpoint "
        "of single objects can be evaluated on them if its network takes "
        "images of any size.",
        choices=("overlap", "below", "beside"),
        recorded=False,
    )
    seed: int = _data_flag(
        0,
        "Seed of the initial weights, the batches and the test pairs, and of "
        "which images of an undivided folder are for testing.",
        at_least=0,
        at_most=2**32 - 1,
    )
    shift: int | None = _data_flag(
        None,
        "Pixels by which a training image moves at most, along each axis; of "
        "record files the shift in their name.",
        at_least=0,
        at_most=10**5,
        default_text="2 for digits and mnist, with two targets 4, else 0",
    )
    validate: bool = _data_flag(
        False,
        "Whether training leaves out a part of the training images, and "
        "evaluation uses exactly that part.",
    )

    @property
    def dataset_name(self):
        """The data set: with files and no name it is MNIST.

        So the reference's commands, where MNIST is the default, work as they
        are; without files it is the embedded digits.
        """
        if self.dataset is not None:
            return self.dataset
        return EMBEDDED if self.data_dir is None else "mnist"

    def split(self, train):
        """The `Split` that a job reads that trains, or evaluates.

        Where training images are held out, the job that evaluates sees exactly
        those.
        """
        if self.validate:
            return Split.VALID_TRAIN if train else Split.VALID_TEST
        return Split.TRAIN if train else Split.TEST

    def as_in(self, training):
        """These, and what was not given as it was in a training.

        That is which data set it was and how its images looked; of another
        data set than the training's nothing is taken.

        Args:
          training: dict, what a checkpoint records of its training.

        Returns:
          Settings of the same class.

        Raises:
          UserError: if what is recorded is out of range.
        """
        known = training.get("dataset")
        if self.dataset not in (None, known) or (
            known == EMBEDDED and self.data_dir is not None
        ):
            return self
        taken = {}
        for name, (_, _, meaning) in meanings(self).items():
            if not meaning.kept or getattr(self, name) is not None:
                continue
            taken[name] = training.get(name)
            if not meaning.allows(taken[name]):
                raise UserError(
                    f"the checkpoint records --{name}="
                    f"{shortened(taken[name])}, which must be {meaning.allowed}"
                )
        return dataclasses.replace(self, **taken)
