import pytest

from devices import choice

# Answers as NVIDIA's tool does on a machine of three GPUs.
NVIDIA_SMI = """#!/bin/sh
case "$*" in
  *--id=2,0) echo 30; echo 10;;
  *--id=*) exit 6;;
  *) echo 10; echo 20; echo 30;;
esac
"""


@pytest.mark.parametrize(
    ("visible", "expected"),
    [(None, [10, 20, 30]), ("2,0", [30, 10]), ("-1", []), ("", [])],
)
def test_hidden_gpus_do_not_count(tmp_path, monkeypatch, visible, expected):
    tool = tmp_path / "nvidia-smi"
    tool.write_text(NVIDIA_SMI)
    tool.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert choice._gpu_memory() == expected
