"""Counts the project files behind a training on the digits.

  python -m testing.count_files

prints the files that a training has imported after a step, and those whose
code one eager training step executes, data and callbacks included.
"""

import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).parents[1]


def count():
    """Returns the lists of the imported and of the executed files."""
    import experiment
    from common import load_backend
    from config import Config

    load_backend()
    import tensorflow as tf

    from training.train import Training

    tf.config.run_functions_eagerly(True)
    imported, executed = set(), set()
    follow_step = Training.on_train_batch_end

    def profile(frame, event, argument):
        executed.add(frame.f_code.co_filename)

    def follow_and_count(self, batch, logs=None):
        follow_step(self, batch, logs)
        sys.setprofile(None)
        if batch == 0:  # count during the second step
            imported.update(
                module.__file__
                for module in sys.modules.values()
                if getattr(module, "__file__", None)
            )
            sys.setprofile(profile)
            # tf.data would call this in threads of its own.
            step = tf.constant(1, tf.int64)
            indices = tf.range(8, dtype=tf.int64)
            self.pipeline._training_batch(indices, step, seed=0)

    Training.on_train_batch_end = follow_and_count
    with tempfile.TemporaryDirectory() as folder:
        experiment.run(Config(summary_dir=folder, max_steps=3, summary_step=1))
    return _in_project(imported), _in_project(executed)


def _in_project(files):
    paths = [pathlib.Path(file) for file in files]
    return sorted(
        str(path.relative_to(ROOT))
        for path in paths
        if path.is_relative_to(ROOT) and path.parent.name != "testing"
    )


if __name__ == "__main__":
    imported_files, executed_files = count()
    outside = [f for f in executed_files if not f.startswith("layers/")]
    print(f"imported: {len(imported_files)}", *imported_files, sep="\n  ")
    print(
        f"executed: {len(executed_files)}, {len(outside)} outside layers/",
        *executed_files,
        sep="\n  ",
    )
