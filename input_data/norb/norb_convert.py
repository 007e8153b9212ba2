"""Makes the reference's smallNORB records.

From the original files (smallnorb-5x46789x9x18x6x2x96x96-training-dat.mat and
the others, plain or gzipped) in one folder:

  python input_data/norb/norb_convert.py --data_dir=FOLDER --output_dir=OUT

or, without --data_dir, from the smallnorb of TensorFlow Datasets. It writes
OUT/trainduo.tfrecords and OUT/testduo.tfrecords, each 24,300 records in the
order of the source, for --dataset=norb --data_dir=OUT.

--novel=azimuth or elevation writes the images of a third of the viewpoints
alone, 8,100 and 8,100, and the 16,200 test images of the others to
OUT/novel/testduo.tfrecords.
"""

import os
import pathlib
import signal
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
if __name__ == "__main__":
    # As a command it finds the project's packages from any folder.
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from absl import app, flags

from old.ending import handling_signals, told
from old.flags import parse_or_explain, refuse_arguments


def _define_flags():
    flags.DEFINE_string(
        "data_dir",
        None,
        "Folder with the original files. Default: TensorFlow Datasets.",
    )
    flags.DEFINE_string(
        "output_dir", None, "Folder for the records.", required=True
    )
    flags.DEFINE_enum(
        "novel",
        None,
        ["azimuth", "elevation"],
        "Which viewpoints to keep for a test alone. Default: none.",
    )


def main(argv):
    """Converts by the flags; a user's error is one line and exit 1."""
    refuse_arguments(argv)
    # kill removes half a file, as Ctrl-C does.
    interrupt = handling_signals(signal.default_int_handler)
    with told("norb_convert.py"), interrupt:
        from input_data.generators.norb_conversion import convert

        convert(flags.FLAGS.data_dir, flags.FLAGS.output_dir, flags.FLAGS.novel)


if __name__ == "__main__":
    _define_flags()
    app.run(main, flags_parser=parse_or_explain)
