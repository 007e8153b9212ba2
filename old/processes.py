"""Functions in processes of their own."""

import multiprocessing
import os
import signal
import sys
import threading

from old.errors import Interrupted, UserError


def in_own_process(function, *arguments):
    """What a function of a module gives in a process that ends with it.

    If this process is interrupted the other one is asked to stop, by SIGTERM,
    and waited for; if it is killed, the other one stops as well.

    Raises:
      UserError: that of the function, or if the process ended without one.
    """
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_call, args=(there, function, arguments))
    try:
        process.start()
        there.close()
        value, error = here.recv()
    except EOFError:
        process.join()
        raise UserError(
            f"its process ended by itself, with exit code {process.exitcode}"
        ) from None
    except BaseException:
        if process.pid:
            process.terminate()
        raise
    finally:
        if process.pid:
            process.join()
    if error is not None:
        raise UserError(*error)
    return value


def end_with_parent():
    """Sends this process SIGTERM once the one that started it is gone."""

    def wait():
        multiprocessing.parent_process().join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


def _call(connection, function, arguments):
    # Ctrl-C goes to the process that started it, which passes it on once.
    os.setsid()
    end_with_parent()
    try:
        connection.send((function(*arguments), None))
    except UserError as error:
        connection.send((None, error.args))
    except Interrupted as stop:
        print(stop)
        sys.exit(128 + stop.signal_number)
