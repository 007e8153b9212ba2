"""Evaluation: of one checkpoint, of those of a training, and of an ensemble."""

import contextlib
import dataclasses
import math
import pathlib
import re
import socket
import time

import checkpoints
from devices.parallel import OneDevice
from evaluation.evaluator import Evaluator, require_same_images
from evaluation.results import Results
from old.errors import UserError
from old.text import listed
from training.process import is_training

_ONE_DEVICE = OneDevice()
# Seconds in which a training may start: both jobs may be started together.
START_TIMEOUT = 60
# Seconds between looks whether it has started, and at most between others.
_SHORT_INTERVAL = 0.5
_LONGEST_INTERVAL = 3600
# Seconds that a training may run on after its last checkpoint.
_ENDING = 10
# Seconds in which a training of another machine writes to its event file.
_WRITES_WITHIN = 600
# As TensorFlow names it: by time, machine, process and number.
_EVENTS = re.compile(r"events\.out\.tfevents\.\d+\.(.+)\.\d+\.\d+\.v2")


def evaluate_once(config, parallel=_ONE_DEVICE):
    """Evaluates the checkpoint that `config.checkpoint` names.

    Args:
      config: `Config`.
      parallel: `parallel.OneDevice`, the default, or one of its subclasses:
        what to compute on.

    Returns:
      `Score`.
    """
    (path,) = config.members
    # First, lest they fail after the work.
    checkpoint = checkpoints.open(path)
    with Results(config, parallel.is_first) as results:
        results.prepare()
        predictions = Evaluator(config, parallel).predict(checkpoint)
        found = predictions.score
        # A folder was named, which stands for its newest.
        is_another = checkpoint.path != pathlib.Path(path)
        title = f"{checkpoint.path}:\n" if is_another else ""
        results.tell(title, predictions, checkpoint)
    return found


@contextlib.contextmanager
def evaluating_saved(config, parallel=_ONE_DEVICE):
    """A context with what evaluates the checkpoints of a training as it saves.

    Yields:
      Function of the path of a checkpoint; None without `eval_every`.
    """
    if config.eval_every is None:
        yield None
        return
    evaluator = Evaluator(config, parallel)
    with Results(config, parallel.is_first) as results:
        results.require_curves()

        def evaluate(path):
            results.prepare()
            checkpoint = checkpoints.open(path)
            predictions = evaluator.predict(checkpoint)
            results.tell(f"{path}:\n", predictions, checkpoint)

        yield evaluate


def evaluate_ensemble(config, parallel=_ONE_DEVICE):
    """Evaluates checkpoints, and the mean of their logits.

    `{}` in `config.checkpoint` stands for 0 to `num_trials` - 1.

    Returns:
      Pair of the list of each member's `Score` and the ensemble's `Score`.

    Raises:
      UserError: if a checkpoint is missing: it lists those that were found.
        If they are for images of other kinds, or some give lengths of
        capsules and others what has another scale.
    """
    paths = config.members
    checkpoints.require_existing(paths)
    evaluator = Evaluator(config, parallel)
    members, total, first = [], 0.0, None
    with Results(config, parallel.is_first) as results:
        if config.format == "json":  # lest its files fail after the work
            results.prepare()
        for path in paths:
            checkpoint = checkpoints.open(path)
            predictions = evaluator.predict(checkpoint)
            model = evaluator.model
            values = (
                "lengths of capsules"
                if model.has_class_capsules
                else f"the outputs of model {model.name}"
            )
            first = first or (predictions.pipeline, values)
            require_same_images(predictions, first[0], path, "--num_targets")
            if values != first[1]:
                raise UserError(
                    f"{path} is of {values} but {paths[0]} of {first[1]}: they "
                    "cannot form an ensemble"
                )
            members.append(predictions.score)
            results.tell(f"{path}: ", predictions, checkpoint, is_member=True)
            total = total + predictions.logits
        together = dataclasses.replace(
            predictions, logits=total / len(paths), losses=None
        )
        results.tell_mean(members)
        results.tell(f"Ensemble of {len(paths)}:\n", together)
    return members, together.score


def evaluate_continuously(config, parallel=_ONE_DEVICE):
    """Evaluates the checkpoints of a training job.

    While a training runs in `<summary_dir>/train`, every checkpoint is
    evaluated as it comes, once and in the order of steps; that ends with the
    training's last step, or after `eval_timeout` seconds without a new one.
    A training runs if it holds its lock, which tells of this machine alone
    where several share a disk, or if event files of another machine there
    change while this job looks.
    Where none runs and none starts within `START_TIMEOUT` seconds, the newest
    checkpoint is, or with `eval_all` each that is there.

    Raises:
      UserError: if there is no checkpoint, or none but TF1's, or one does not
        work.
    """
    config.require_summary_dir()
    if not parallel.is_alone:
        raise UserError(
            "waiting for checkpoints is for one process: leave out "
            "--num_processes, or name a --checkpoint"
        )
    with Results(config) as results:
        _Follower(config, Evaluator(config, parallel), results).run()


class _Follower:
    """Evaluates the checkpoints in a training's folder, each once."""

    def __init__(self, config, evaluator, results):
        self._config = config
        self._evaluator = evaluator
        self._results = results
        self._directory = pathlib.Path(config.summary_dir) / "train"
        self._seen = set()
        self._last_step = -1
        self._is_finished = False
        self._events = _events_of_others(self._directory)
        self._last_change = -math.inf

    def run(self):
        """Evaluates them; see `evaluate_continuously`."""
        if not self._starts():
            self._evaluate_those_there()
            # It may have started meanwhile.
            if not self._runs():
                return
        self._follow()

    def _starts(self):
        """Whether a training runs, or starts within a minute."""
        if self._runs():
            return True
        found = checkpoints.find_all(self._directory)
        if found and self._is_last(found[-1][1]):
            return False
        others = checkpoints.find_tf1(self._directory)
        if others and not found:
            raise UserError(
                f"{self._directory} has checkpoints of TF1, {listed(others)}: "
                "name the one to evaluate by --checkpoint"
            )
        patience = min(START_TIMEOUT, self._config.eval_timeout)
        print(
            f"No training runs in {self._directory}: waiting {patience:g} "
            "seconds for one to start",
            flush=True,
        )
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            time.sleep(min(_SHORT_INTERVAL, self._config.eval_interval))
            if self._runs():
                return True
        return False

    def _runs(self):
        """Whether a training runs, here or on another machine."""
        if is_training(self._directory):
            return True
        now, events = time.monotonic(), _events_of_others(self._directory)
        if events - self._events:
            self._events, self._last_change = events, now
        within = _ENDING if self._is_finished else _WRITES_WITHIN
        return now < self._last_change + within

    def _is_last(self, path):
        """Whether a training has ended with this checkpoint."""
        try:
            return _is_finished(checkpoints.open(path))
        except checkpoints.DamagedError:
            return False

    def _evaluate_those_there(self):
        found = checkpoints.find_all(self._directory)
        for _, path in found if self._config.eval_all else reversed(found):
            is_done = self._evaluate(path)
            if is_done and not self._config.eval_all:
                # The earlier ones are not asked for.
                self._seen |= {_identity(other) for _, other in found}
                break
        if self._last_step < 0:
            raise UserError(
                f"there is no checkpoint to evaluate in {self._directory}, and "
                "no training runs there"
            )

    def _follow(self):
        timeout = self._config.eval_timeout
        print(
            f"Waiting for checkpoints in {self._directory}, until the "
            f"training's last step or {timeout:g} seconds without a new one",
            flush=True,
        )
        last_time = last_running = time.monotonic()
        while True:
            # First: what it saves until it ends is then seen below.
            runs = self._runs()
            for step, path in checkpoints.find_all(self._directory):
                if _identity(path) in self._seen:
                    continue
                if step <= self._last_step:
                    print(f"The training in {self._directory} began anew")
                if self._evaluate(path):
                    last_time = time.monotonic()
            now = time.monotonic()
            if runs:
                last_running = now
            # One that runs long after its end goes on, to a later one.
            is_over = self._is_finished and last_running < last_time + _ENDING
            if is_over and not runs:
                return
            if runs:
                left = last_time + timeout - now
            else:  # it may be started again
                left = max(last_time, last_running) - now
                left += min(START_TIMEOUT, timeout)
            if left < 0:
                break
            interval = min(self._config.eval_interval, _LONGEST_INTERVAL, left)
            if is_over:
                interval = min(interval, _SHORT_INTERVAL)
            time.sleep(interval)
        if self._last_step < 0:
            raise UserError(
                f"no checkpoint came to {self._directory} in {timeout:g} "
                "seconds"
            )
        if runs:
            print(
                f"No new checkpoint in {self._directory} for {timeout:g} "
                "seconds"
            )
        else:
            print(f"The training in {self._directory} has stopped")

    def _evaluate(self, path):
        """Evaluates a checkpoint; returns whether it could be."""
        self._seen.add(_identity(path))
        # A training that went on has later ones than its first last.
        self._is_finished = False
        self._results.prepare()
        try:
            # A training with --keep may remove it from here on.
            checkpoint = checkpoints.open(path)
            predictions = self._evaluator.predict(checkpoint)
        except UserError as error:
            removed = not path.is_dir()  # by a training with --keep
            damaged = isinstance(error, checkpoints.DamagedError)
            if not removed and not damaged:
                raise
            print(f"Warning: {error}; not evaluated", flush=True)
            return False
        self._last_step = checkpoint.step
        self._is_finished = _is_finished(checkpoint)
        self._results.tell(f"{path}:\n", predictions, checkpoint)
        return True


def _is_finished(checkpoint):
    """Whether it is known to be the last of its training."""
    last = checkpoint.training.get("max_steps")
    return last is not None and checkpoint.step >= last


def _events_of_others(directory):
    """The event files of other machines, which change as they train."""
    here = socket.gethostname()
    return {
        _identity(path)
        for path in directory.glob("events.out.tfevents.*")
        if (named := _EVENTS.fullmatch(path.name)) and named[1] != here
    }


def _identity(path):
    """What tells a checkpoint from a later one of the same name."""
    try:
        status = path.stat()
    except OSError:
        return path, None
    return path, status.st_ino, status.st_mtime_ns
