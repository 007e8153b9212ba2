"""Several processes, on one machine or many, that do one job together.

They need the JAX backend. The first process writes checkpoints and summaries
and prints; all of them read the data and the checkpoints.
"""

import contextlib
import logging
import os
import re
import signal
import socket
import sys
import time
import traceback

import keras

from old.errors import InterruptedAtOnce, UserError

# Seconds without a sign of life after which a process counts as dead, and
# until which all must have come at the start.
HEARTBEAT_TIMEOUT = 30
START_TIMEOUT = 300
# Keras' own environment variables, read where no flag is given.
ADDRESS_VARIABLE = "KERAS_DISTRIBUTION_JOB_ADDRESSES"
NUMBER_VARIABLE = "KERAS_DISTRIBUTION_NUM_PROCESSES"
INDEX_VARIABLE = "KERAS_DISTRIBUTION_PROCESS_ID"
_LARGEST_PORT = 65535
_LOST_CONNECTION = re.compile("gloo|nccl|heartbeat|coordination", re.IGNORECASE)


@contextlib.contextmanager
def joined(settings, command):
    """A context in which this process is one of a cluster, if asked for.

    Where a setting is None, Keras' environment variable of the same meaning
    is taken. A UserError, an error of another process and its death end this
    process at once, with a message: a tidy end would wait for the others, who
    wait for this one. (JAX may be first to notice: then the message is its
    own and the process ends by SIGABRT.)

    Args:
      settings: `devices.Settings`.
      command: string, the name of the program, before messages.

    Raises:
      UserError: for settings that do not work.
    """
    member = _membership(settings)
    if member is None:
        yield
        return
    address, num_processes, index = member
    import jax

    # It tells of every connection.
    logging.getLogger("jax").setLevel(logging.WARNING)

    def leave(error, code=1):
        sys.stdout.flush()
        print(f"{command}: {error}", file=sys.stderr, flush=True)
        os._exit(code)

    if index > 0:
        _wait_for_first(address)
    try:
        # Not keras.distribution.initialize, which waits for 100 seconds
        # before it notices that a process has died.
        jax.distributed.initialize(
            address,
            num_processes,
            index,
            initialization_timeout=START_TIMEOUT,
            heartbeat_timeout_seconds=HEARTBEAT_TIMEOUT,
            # Slurm and others would choose the GPUs against --device.
            cluster_detection_method="deactivate",
        )
    except RuntimeError as error:
        leave(
            f"process {index} of {num_processes} cannot join the others at "
            f"{address}: {_first_line(error)}"
        )
    try:
        with (
            open(os.devnull, "w") as nowhere,
            # The first process speaks for all.
            contextlib.redirect_stdout(nowhere if index else sys.stdout),
        ):
            yield
    except UserError as error:
        leave(error)
    except InterruptedAtOnce as stop:
        leave(stop, 128 + stop.signal_number)
    except KeyboardInterrupt:
        leave("interrupted", 128 + signal.SIGINT)
    except Exception as error:
        # JAX has no type of its own for the end of a connection.
        if not _LOST_CONNECTION.search(str(error)):
            traceback.print_exc()
        leave(
            f"process {index} of {num_processes} ends: another one has died, "
            "or this one has failed. Started again by the same commands, all "
            f"go on from the newest checkpoint. ({_first_line(error)})"
        )


def _membership(settings):
    """(address, number, index), or None for a process by itself."""
    address, index = settings.coordinator_address, settings.process_index
    num_processes = settings.num_processes
    if num_processes is None:
        num_processes = _from_environment(NUMBER_VARIABLE, at_least=1)
    if num_processes is None or num_processes == 1:
        if address is not None or index:
            raise UserError(
                "--coordinator_address and --process_index need "
                f"--num_processes, or {NUMBER_VARIABLE}: at least 2"
            )
        return None
    source = "--coordinator_address" if address else ADDRESS_VARIABLE
    address = address or os.environ.get(ADDRESS_VARIABLE)
    if index is None:
        index = _from_environment(INDEX_VARIABLE)
    if keras.backend.backend() != "jax":
        raise UserError(
            f"--num_processes={num_processes} needs KERAS_BACKEND=jax; it is "
            f"{keras.backend.backend()}"
        )
    if address is None:
        raise UserError(
            f"--num_processes={num_processes} needs --coordinator_address, or "
            f"{ADDRESS_VARIABLE}: HOST:PORT of the first process"
        )
    if index is None or not 0 <= index < num_processes:
        raise UserError(
            f"--num_processes={num_processes} needs --process_index, or "
            f"{INDEX_VARIABLE}: from 0 to {num_processes - 1}; it is {index}"
        )
    address = address.split(",")[0]
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > _LARGEST_PORT:
        raise UserError(
            f"{source}={address} should be HOST:PORT, such as 10.0.0.1:1234"
        )
    return address, num_processes, index


def _wait_for_first(address):
    """Waits until the first process listens: JAX would end by SIGABRT."""
    host, _, port = address.rpartition(":")
    last = time.monotonic() + START_TIMEOUT
    while True:
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
            return
        except (OSError, UnicodeError) as error:  # of names such as a..b
            if time.monotonic() > last:
                raise UserError(
                    f"the first process cannot be reached at {address} within "
                    f"{START_TIMEOUT} seconds: {error}"
                ) from None
        time.sleep(0.2)


def _from_environment(name, at_least=0):
    value = os.environ.get(name)
    if value is None:
        return None
    if not value.isdecimal() or int(value) < at_least:
        raise UserError(
            f"{name}={value} should be a number of at least {at_least}"
        )
    return int(value)


def _first_line(error):
    return str(error).strip().split("\n")[0][:300]
