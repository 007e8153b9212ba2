import pytest

from input_data import memory
from old.errors import UserError


def test_the_limit_of_a_container_counts(tmp_path, monkeypatch):
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(memory, "_CONTAINER_LIMIT", limit)
    of_machine = memory.available()
    for no_limit in ("max\n", f"{10**18}\n"):
        limit.write_text(no_limit)
        assert memory.available() == of_machine
    limit.write_text("2000000\n")
    assert memory.available() == 10**6
    memory.require_memory(10**6, "x")
    with pytest.raises(UserError, match="x takes 0.0 GB"):
        memory.require_memory(10**6 + 1, "x")
