"""Reproduces published results: trains and tests networks, and stores results.

  python reproduce.py --list
  python reproduce.py mnist-3 --seeds=0,1,2 --data_dir=DATA --work_dir=WORK
  python reproduce.py --table

The arguments are names of experiments; `all` stands for every experiment whose
data are in --data_dir. That folder has a sub-folder for each data set: mnist,
fashion_mnist, cifar10, norb, svhn, affnist. A run whose result exists is
skipped; the same command resumes an interrupted run.
"""

from common import flags
from common.errors import UserError, optional_output
from runs.reproduction import EXPERIMENTS, ReproduceFlags, reproduce


@optional_output()
def main(names):
    """Lists, reproduces or tabulates experiments, as the flags say."""
    settings = flags.settings_of(ReproduceFlags)
    if not (names or settings.list or settings.table):
        raise UserError("give names of experiments, --list or --table")
    if settings.list:
        for experiment in EXPERIMENTS.values():
            published = experiment.published_text(experiment.published)
            print(f"{experiment.name:26}{experiment.title}: {published}")
    if names:
        reproduce(names, settings)
    if settings.table:
        from runs import pages

        pages.write_results(settings.output_dir)


if __name__ == "__main__":
    flags.define(ReproduceFlags)
    flags.run(main, takes_arguments=True)
