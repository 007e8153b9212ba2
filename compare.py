"""Compares models on one data set, under one budget of time or steps.

  python compare.py --output_dir=/tmp/comparison --dataset=digits --steps=300

--settings="MODEL FLAGS" gives flags of experiment.py to one model, and
--settings="all FLAGS" to all models. MODEL-LABEL, such as capsule-r1, is MODEL
with other flags. Repeat the command to resume. See docs/comparison.md.
"""

from absl.flags import DEFINE_multi_string

from common import flags, load_backend
from common.errors import optional_output
from config import DATA_FLAGS, Config
from runs.comparison import CompareFlags, compare


@optional_output()
def main(arguments):
    """Compares models; the flags give the settings."""
    load_backend()
    from training import devices

    config = flags.settings_of(Config)
    with devices.use(Config(device="cpu", num_processes=1)):
        compare(flags.settings_of(CompareFlags), config, _SETTINGS.value)


if __name__ == "__main__":
    flags.define(Config, DATA_FLAGS)
    flags.define(CompareFlags)
    _SETTINGS = DEFINE_multi_string(
        "settings",
        [],
        "A model, or all, and its flags, such as 'baseline --batch_size=64'. "
        "MODEL-LABEL is a row of its own. Can be given several times.",
    )
    flags.run(main)
