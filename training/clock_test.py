import itertools
import re
import types

from testing.events import scalars
from testing.small_models import overrides
from training import train
from training.config import Config


def test_evaluations_between_steps_are_not_training(
    tmp_path, capsys, monkeypatch
):
    looks = itertools.count()  # a second from one look to the next
    evaluations = []

    def monotonic():
        return next(looks) + 10_000 * len(evaluations)

    monkeypatch.setattr(
        "training.clock.time", types.SimpleNamespace(monotonic=monotonic)
    )
    config = Config(
        summary_dir=str(tmp_path),
        hparams_override=overrides("capsule"),
        batch_size=8,
        max_steps=4,
        eval_every=1,
        summary_step=1,
    )
    train.train(config, evaluate=evaluations.append)
    assert len(evaluations) == 4
    seconds = re.search(r"4 steps in (\d+) s", capsys.readouterr().out)
    assert int(seconds[1]) < 100
    rates = scalars(tmp_path / "train")["images_per_second"]
    assert list(rates) == [2, 3, 4]  # not of the first, which compiles
    assert min(rates.values()) > 0.1
