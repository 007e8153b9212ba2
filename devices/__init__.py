"""What a job computes on: one device, several, several machines.

Importing this package loads no backend: `use` does.
"""

import contextlib
import dataclasses


@dataclasses.dataclass(frozen=True)
class Settings:
    """What may be asked for.

    Attributes:
      device: string, "cpu", "gpu" or "gpu:2", the first device to use, or
        None for the first GPU if there is one, else the CPU. Several of "cpu"
        are logical devices that share the cores.
      num_gpus: int, how many devices.
      gpu_memory_limit: int, megabytes of each GPU, or None for as much as is
        needed (on JAX: without reserving it first).
      deterministic: bool, whether GPUs, too, repeat a run bit for bit.
      coordinator_address: string, "host:port" of the first process.
      num_processes: int; with 1 there is no cluster, and None stands for
        Keras' environment variables, as it does for the other two.
      process_index: int, which of the processes this is.
    """

    device: str | None = None
    num_gpus: int = 1
    gpu_memory_limit: int | None = None
    deterministic: bool = False
    coordinator_address: str | None = None
    num_processes: int | None = 1
    process_index: int | None = None


@contextlib.contextmanager
def use(settings, command):
    """A context for all that a job computes; to be entered once, and first.

    In a cluster a UserError, an error of another process and its death end
    this process at once: see `cluster.joined`.

    Args:
      settings: `Settings`, or anything with its attributes, such as `Config`.
      command: string, the name of the program, before messages.

    Yields:
      `parallel.OneDevice`, or one of its subclasses.

    Raises:
      UserError: if there are no such devices, or the backend cannot use them
        so.
    """
    from devices import choice, cluster, parallel

    with choice.computing_on(settings), cluster.joined(settings, command):
        yield parallel.make(settings)
