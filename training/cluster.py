"""Several processes, on one machine or more, that train together on JAX.

The first process writes checkpoints and summaries and prints; all of them read
the data and the checkpoints.
"""

import contextlib
import logging
import os
import socket
import sys
import time
import traceback

import keras

from common.errors import Interrupted, UserError

# Seconds until all processes must have started, and without a sign of life
# after which one counts as dead.
_START_TIMEOUT = 300
_HEARTBEAT_TIMEOUT = 30
# Keras' environment variables, for settings that no flag gives.
_ADDRESS = "KERAS_DISTRIBUTION_JOB_ADDRESSES"
_INDEX = "KERAS_DISTRIBUTION_PROCESS_ID"


@contextlib.contextmanager
def joined(config, number, command):
    """Joins the other processes of the job.

    Any error ends this process at once, with a message: a regular exit would
    wait for the others, which wait for this one.

    Args:
      config: `Config`.
      number: int, how many processes there are.
      command: string, the name of the command before messages.

    Raises:
      UserError: for settings that do not work.
    """
    environment = os.environ
    address = config.coordinator_address or environment.get(_ADDRESS)
    index = config.process_index
    if index is None:
        index = int(environment.get(_INDEX, -1))
    if keras.backend.backend() != "jax":
        raise UserError(f"--num_processes={number} needs KERAS_BACKEND=jax")
    if not address or not 0 <= index < number:
        raise UserError(
            f"--num_processes={number} needs --coordinator_address=HOST:PORT "
            f"and --process_index from 0 to {number - 1}"
        )
    address = address.split(",")[0]
    import jax

    logging.getLogger("jax").setLevel(logging.WARNING)
    if index > 0:
        _wait_for_first(address)
    try:
        # keras.distribution.initialize has no time-outs.
        jax.distributed.initialize(
            address,
            number,
            index,
            initialization_timeout=_START_TIMEOUT,
            heartbeat_timeout_seconds=_HEARTBEAT_TIMEOUT,
            # Cluster managers would choose GPUs against --device.
            cluster_detection_method="deactivate",
        )
        with (
            open(os.devnull, "w") as nowhere,
            contextlib.redirect_stdout(nowhere if index else sys.stdout),
        ):
            yield
    except UserError as error:
        _exit(f"{command}: {error}")
    except Interrupted as stop:
        _exit(f"{command}: {stop}", 128 + stop.signal_number)
    except Exception as error:
        traceback.print_exc()
        _exit(
            f"{command}: process {index} of {number} ends: "
            f"{type(error).__name__}. Restart all processes to resume from "
            "the newest checkpoint"
        )


def _exit(message, status=1):
    sys.stdout.flush()
    print(message, file=sys.stderr, flush=True)
    os._exit(status)


def _wait_for_first(address):
    """Waits until the first process listens; JAX would abort instead."""
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + _START_TIMEOUT
    while True:
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
            return
        except (OSError, ValueError) as error:
            if time.monotonic() > deadline or isinstance(error, ValueError):
                raise UserError(f"{address}: {error}") from None
        time.sleep(0.2)
