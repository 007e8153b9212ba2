import errno

import pytest

from checkpoints import find_all, remove_partial
from old.errors import UserError


def test_they_are_found_by_name_in_order_of_steps(tmp_path):
    for name in ("model.ckpt-1000", "model.ckpt-200", "model.ckpt-30"):
        (tmp_path / name).mkdir()
    for name in ("model.ckpt-x", ".model.ckpt-7.partial", "other-3"):
        (tmp_path / name).mkdir()
    (tmp_path / "model.ckpt-5").write_text("a file")
    assert [step for step, _ in find_all(tmp_path)] == [30, 200, 1000]
    assert find_all(tmp_path / "none") == []


def test_what_killed_processes_leave_is_removed(tmp_path):
    kept = [tmp_path / "model.ckpt-9", tmp_path / ".mine.partial"]
    # The first as earlier versions had it.
    left = (".model.ckpt-9.partial", ".model.ckpt-9.host.7.partial")
    for name in (*left, ".model.ckpt-5.removed", *kept):
        (tmp_path / name).mkdir()
        (tmp_path / name / "half").write_bytes(b"half")
    remove_partial(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted(kept)


@pytest.mark.parametrize("refused", ["pathlib.Path.iterdir", "os.stat"])
def test_a_folder_that_may_not_be_looked_into_is_named(
    tmp_path, monkeypatch, refused
):
    (tmp_path / "model.ckpt-3").mkdir()

    def refuse(path):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(refused, refuse)
    with pytest.raises(UserError, match="cannot be read: Permission denied"):
        find_all(tmp_path)
