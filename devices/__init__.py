"""What a job computes on: one device, several, several machines.

Importing this package loads no backend: `use` does.
"""

import contextlib
import dataclasses

from old.fields import field


@dataclasses.dataclass(frozen=True)
class Settings:
    """What may be asked for; with `num_processes` 1 there is no cluster."""

    coordinator_address: str | None = field(
        None,
        "With --num_processes: HOST:PORT of the first process, which all can "
        "reach.",
        default_text="$KERAS_DISTRIBUTION_JOB_ADDRESSES",
    )
    deterministic: bool = field(
        False,
        "Whether GPUs, too, repeat a run bit for bit; slower. CPUs always do.",
    )
    device: str | None = field(
        None,
        "Where to compute: cpu, gpu, or gpu:1 for the second GPU; with "
        "--num_gpus the first of them, and of cpu as many logical devices.",
        is_valid=lambda name: (
            name in ("cpu", "gpu")
            or (name.startswith("gpu:") and name[4:].isdecimal())
        ),
        valid="cpu, gpu or gpu:NUMBER",
        default_text="the first GPU, else the CPU",
    )
    gpu_memory_limit: int | None = field(
        None,
        "Megabytes of each GPU to use at most, so that two jobs can share one.",
        at_least=1,
        default_text="as much as is needed",
    )
    num_gpus: int = field(
        1, "GPUs of this machine to use together.", at_least=1, at_most=1024
    )
    num_processes: int | None = field(
        None,
        "Processes that do the job together, on one or more machines, each "
        "with --num_gpus; needs KERAS_BACKEND=jax.",
        at_least=1,
        default_text="$KERAS_DISTRIBUTION_NUM_PROCESSES, else 1",
    )
    process_index: int | None = field(
        None,
        "With --num_processes: which of them this is, from 0.",
        at_least=0,
        default_text="$KERAS_DISTRIBUTION_PROCESS_ID",
    )


@contextlib.contextmanager
def use(settings, command):
    """A context for all that a job computes; to be entered once, and first.

    In a cluster a UserError, an error of another process and its death end
    this process at once: see `cluster.joined`.

    Args:
      settings: `Settings`.
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
