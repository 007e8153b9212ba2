"""Serves a web page on which you draw a digit and change its capsule.

  python demo.py  # the pretrained network for MNIST
  python demo.py --checkpoint=/tmp/mnist/train/model.ckpt-1000
  python demo.py --checkpoint=... --data_dir=$DATA_DIR/mnist_data

Each command prints the address to open in a browser; Ctrl-C ends the command.
With --data_dir the page also shows test images. --help lists the flags.
"""

import signal

from absl import flags

import common.flags
from common import load_backend
from common.errors import UserError
from config import EVALUATION_FLAGS, Config


def main(_):
    """Serves the page until it is interrupted."""
    load_backend()
    # Imported here, so that --help does not wait for TensorFlow.
    from demonstration.model import DemoModel
    from training import devices

    try:
        from demonstration import server
    except ModuleNotFoundError as error:
        hint = "pip install -r requirements-dev.txt"
        raise UserError(f"{error}: {hint}") from error

    config = common.flags.settings_of(Config, train=False, num_processes=1)
    with devices.use(config):
        # Compiled code may swallow the exception of Ctrl-C.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        server.serve(DemoModel(config), flags.FLAGS.host, flags.FLAGS.port)


if __name__ == "__main__":
    common.flags.define(
        Config, [*EVALUATION_FLAGS, "checkpoint", "hparams_override", "model"]
    )
    flags.DEFINE_string(
        "host",
        "127.0.0.1",
        "Address to listen on. Any but 127.0.0.1 and ::1 lets other machines "
        "use the page; 0.0.0.0 is all addresses of this machine.",
    )
    flags.DEFINE_integer(
        "port",
        7860,
        "Port to listen on; 0 chooses a free one.",
        lower_bound=0,
        upper_bound=2**16 - 1,
    )
    common.flags.run(main)
