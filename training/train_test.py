from training import train


def test_only_laps_count(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(train.time, "monotonic", lambda: now[0])
    timer = train.Clock(batch_size=8, seconds=5.0)
    now[0] += 30
    timer.restart()
    assert timer.images_per_second is timer.point() is None
    now[0] += 2
    timer.lap(1)
    assert timer.seconds == 7
    assert timer.point() == timer.images_per_second == 4
    now[0] += 1
    timer.lap(3)
    now[0] += 50  # a checkpoint
    timer.restart()
    now[0] += 1
    timer.lap(1)
    assert (timer.seconds, timer.run_seconds) == (9, 4)  # 5 of earlier runs
    assert timer.point() == 4 * 8 / 2
    assert timer.images_per_second == 5 * 8 / 4
    assert timer.point() is None
