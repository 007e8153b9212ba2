"""Writes smallNORB as record files in the reference's format.

This command reads the original files from FOLDER, plain or gzipped
(smallnorb-5x46789x9x18x6x2x96x96-training-dat.mat and the others):

  python input_data/norb/norb_convert.py --data_dir=FOLDER --output_dir=OUT

Without --data_dir it reads smallnorb of TensorFlow Datasets. It writes
OUT/trainduo.tfrecords and OUT/testduo.tfrecords with 24,300 records each, in
the order of the source. Read them with --dataset=norb --data_dir=OUT.
--dataset=norb --data_dir=FOLDER reads the original files, too.
"""

import pathlib
import sys

# Finds the project's packages from any folder.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from absl import flags

from common.flags import run


def main(_):
    """Runs the command."""
    from input_data.datasets.norb import convert  # slow to import

    convert(flags.FLAGS.data_dir, flags.FLAGS.output_dir)


if __name__ == "__main__":
    flags.DEFINE_string(
        "data_dir", None, "Folder with the original files. Default: TFDS."
    )
    flags.DEFINE_string("output_dir", None, "Output folder.", required=True)
    run(main)
