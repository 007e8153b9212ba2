"""Compares all models on one data set, under one budget of time or steps.

  python compare.py --output_dir=/tmp/comparison --dataset=digits --steps=300
  python compare.py --output_dir=/tmp/mnist --data_dir=DIR --minutes=20 \
    --seeds=3 --settings="efficient_capsule --augment --batch_size=64"

  python compare.py --output_dir=/tmp/routing --dataset=digits --steps=300 \
    --seeds=3 --models=capsule,capsule-r1,capsule-leaky \
    --settings="capsule-r1 --hparams_override=routing=1" \
    --settings="capsule-leaky --hparams_override=leaky=true"

Each model trains by its own hyper-parameters, loss, optimiser and schedule;
--settings "MODEL FLAGS" gives flags of experiment.py to one of them, --settings
"all FLAGS" to all. MODEL-LABEL is that model once more, with flags of its own.
Every run is a training in a process of its own, in <output_dir>/MODEL/SEED.
What was found is in <output_dir>/comparison.json as soon as a run ends; at the
end come a table and two pictures. A comparison that was interrupted goes on by
the same command, and one with more --seeds or --models adds them.

weights are the trainable ones; multiply-adds are those of one forward pass
without the decoder (comparison/multiply_adds.py has the rule); peak memory is
that of the process that trains, on a GPU of the device.
"""

import absl.flags
from absl import app

from comparison.settings import Settings, own_flags
from old import flags
from old.ending import interrupted_by_signals, told
from old.startup import load_backend

_SETTINGS = "settings"


def run(settings, lines=()):
    """Does a comparison, or goes on with it.

    Args:
      settings: `Settings`.
      lines: list of strings, values of --settings.

    Raises:
      UserError: for settings that do not work.
      Interrupted: after a signal.
    """
    settings.require_complete()
    own = own_flags(lines)
    load_backend()
    from comparison.compare import compare

    with interrupted_by_signals():
        compare(settings, own)


def main(argv):
    """Compares by the flags; a user's error is one line and exit 1."""
    flags.refuse_arguments(argv)
    with told("compare.py"):
        run(flags.settings_of(Settings), absl.flags.FLAGS[_SETTINGS].value)


if __name__ == "__main__":
    flags.define(Settings)
    absl.flags.DEFINE_multi_string(
        _SETTINGS,
        [],
        "A model's name, or all, then flags of experiment.py for it alone, "
        "such as 'baseline --batch_size=64'; MODEL-LABEL is a row of its own. "
        "May be given several times.",
    )
    app.run(main, flags_parser=flags.parse_or_explain)
