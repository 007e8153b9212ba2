import subprocess
import sys

import pytest

from input_data.generators import shifted_records
from input_data.generators.shifted_records_test import contents_of, pairs_job
from input_data.mnist import mnist_shift_beam

# conftest.py collects this file only where Apache Beam is installed.
pytestmark = pytest.mark.slow


def run(folder, *flags):
    return subprocess.run(
        [
            *(sys.executable, mnist_shift_beam.__file__),
            *(f"--data_dir={folder}", "--dataset=digits", "--split=test"),
            *("--shift=1", "--pad=1", "--multi_targets", "--max_shard=200"),
            # The DirectRunner within this process.
            *("--seed=5", "--runner=BundleBasedDirectRunner", *flags),
        ],
        capture_output=True,
        text=True,
    )


def test_files_are_those_of_mnist_shift(tmp_path):
    job = pairs_job(tmp_path / "alone", max_shard=200)
    shifted_records.generate(job)
    names = sorted(contents_of(tmp_path / "alone"))
    assert len(names) == 6
    folder = tmp_path / "beam"
    result = run(folder, "--num_pairs=3")
    assert result.returncode == 0, result.stderr
    assert contents_of(folder) == contents_of(tmp_path / "alone")

    (folder / names[2]).unlink()
    kept = (folder / names[3]).stat().st_mtime_ns
    result = run(folder, "--num_pairs=3")
    assert result.returncode == 0, result.stderr
    assert contents_of(folder) == contents_of(tmp_path / "alone")
    assert (folder / names[3]).stat().st_mtime_ns == kept


def test_unknown_flag_is_refused(tmp_path):
    result = run(tmp_path / "beam", "--num_pair=3")
    assert result.returncode == 1
    assert "--num_pair=3" in result.stderr.splitlines()[-1]
    assert not (tmp_path / "beam").exists()
