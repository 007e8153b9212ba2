"""Makes the reference's smallNORB records.

From the original files (smallnorb-5x46789x9x18x6x2x96x96-training-dat.mat and
the others, plain or gzipped) in one folder:

  python input_data/norb/norb_convert.py --data_dir=FOLDER --output_dir=OUT

or, without --data_dir, from the smallnorb of TensorFlow Datasets. It writes
OUT/trainduo.tfrecords and OUT/testduo.tfrecords, each 24,300 records in the
order of the source, for --dataset=norb --data_dir=OUT.
"""

import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
if __name__ == "__main__":
    # As a command it finds the project's packages from any folder.
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from absl import app, flags

from common import durable
from common.errors import UserError
from input_data.norb import norb_matrix, norb_tfds
from input_data.norb.norb_input_record import file_name, write_records


def convert(data_dir, output_dir):
    """Writes the records of the training and the test images.

    Args:
      data_dir: path of the folder with the original files, or None for TFDS.
      output_dir: path of the folder to write to; made if need be.

    Raises:
      UserError: if the source is missing or damaged, the records are there
        already, or cannot be written.
    """
    paths = {
        training: pathlib.Path(output_dir) / file_name(training)
        for training in (True, False)
    }
    for path in paths.values():
        durable.refuse_existing(path)
    for training, path in paths.items():
        if data_dir is None:
            data = norb_tfds.read_stereo_images(training)
        else:
            data = norb_matrix.read_stereo_images(data_dir, training)
        durable.remove_leftovers(durable.make_folder(output_dir))
        write_records(path, data)
        print(f"{path}: {len(data.labels)} records")


def _define_flags():
    flags.DEFINE_string(
        "data_dir",
        None,
        "Folder with the original files. Default: TensorFlow Datasets.",
    )
    flags.DEFINE_string(
        "output_dir", None, "Folder for the records.", required=True
    )


def main(argv):
    """Converts by the flags; a user's error is one line and exit 1."""
    if len(argv) > 1:
        raise app.UsageError(f"not a flag: {' '.join(argv[1:])}")
    try:
        convert(flags.FLAGS.data_dir, flags.FLAGS.output_dir)
    except UserError as error:
        sys.exit(f"norb_convert.py: {error}")


if __name__ == "__main__":
    _define_flags()
    app.run(main)
