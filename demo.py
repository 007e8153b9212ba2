"""Opens a page to draw a digit on and to move the atoms of its capsule.

  python demo.py --checkpoint=/tmp/mnist/train/model.ckpt-1000
  python demo.py --checkpoint=... --data_dir=$DATA_DIR/mnist_data

prints the address to open in a browser; Ctrl-C ends it. With --data_dir the
page shows test images, too. --help lists the flags.
"""

from absl import app, flags

import devices
import old.flags
from input_data.options import Options
from old.ending import told
from old.startup import load_backend
from training.config import Config


def define_flags():
    """Defines the flags: of this command, so when it runs as one."""
    old.flags.define_shown(Config, Options)
    flags.DEFINE_string(
        "host",
        "127.0.0.1",
        "Address to listen on. Any but 127.0.0.1 and ::1 lets other machines "
        "use the page; 0.0.0.0 is all addresses of this one.",
    )
    # Nothing, as of a variable that is not set, would be all addresses.
    flags.register_validator("host", bool, "must be an address or a name")
    flags.DEFINE_integer(
        "port",
        7860,
        "Port to listen on; 0 is any that is free.",
        lower_bound=0,
        upper_bound=2**16 - 1,
    )


def serve(config, host, port):
    """Serves the page until it is interrupted.

    Args:
      config: `Config` with the checkpoint and the data.
      host: string, address to listen on.
      port: int, 0 for any that is free.

    Raises:
      UserError: for a checkpoint or data that do not work, or an address that
        cannot be listened on.
    """
    from demonstration import exhibit, server

    shown = exhibit.load(config)
    with server.Server(shown, host, port) as listening:
        shown.warm_up()
        print(f"Open {listening.address} (Ctrl-C ends)", flush=True)
        listening.serve_forever()


def main(argv):
    """Serves the page; a user's error is one line and exit code 1."""
    old.flags.refuse_arguments(argv)
    with told("demo.py"):
        load_backend()
        with devices.use(devices.Settings(num_processes=1), "demo.py"):
            serve(
                old.flags.settings_of(Config, train=False),
                flags.FLAGS.host,
                flags.FLAGS.port,
            )


if __name__ == "__main__":
    define_flags()
    app.run(main, flags_parser=old.flags.parse_or_explain)
