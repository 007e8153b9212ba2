r"""Makes affNIST files from MNIST: random affine transformations on 40x40.

  python input_data/affnist/affnist_generate.py \
      --data_dir=MNIST_FOLDER --output_dir=OUT --copies=32 --seed=0

This command writes OUT/test.mat: 32 transformed copies of each test image, as
in the official file. Read it with --dataset=affnist --data_dir=OUT. With other
values of --split, the command transforms training images. Without --data_dir,
TFDS provides MNIST. With --dataset=digits, the project's digits replace MNIST.
"""

import pathlib
import sys

# Finds the project's packages from any folder.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from absl import flags

from common.flags import run
from input_data.registry import Split


def main(_):
    """Runs the command."""
    from input_data.datasets.affnist import generate  # slow to import

    names = ("dataset", "data_dir", "split", "output_dir", "copies", "seed")
    generate(*(flags.FLAGS[name].value for name in names))


if __name__ == "__main__":
    flags.DEFINE_integer("copies", 32, "Copies of each image.", lower_bound=1)
    flags.DEFINE_string(
        "data_dir", None, "Folder with MNIST's idx files. Default: TFDS."
    )
    flags.DEFINE_enum(
        "dataset", "mnist", ["mnist", "digits"], "Source of the digits."
    )
    flags.DEFINE_string("output_dir", None, "Output folder.", required=True)
    flags.DEFINE_integer("seed", 0, "Random seed.", lower_bound=0)
    flags.DEFINE_enum_class("split", Split.TEST, Split, "Which images.")
    run(main)
