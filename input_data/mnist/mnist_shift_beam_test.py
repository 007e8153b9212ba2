import importlib.util

import pytest

from input_data import shifted_records
from input_data.shifted_records_test import contents_of, pairs_job
from testing import commands

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not importlib.util.find_spec("apache_beam"), reason="needs Apache Beam"
    ),
]


def run(folder, *flags):
    return commands.run(
        *("input_data/mnist/mnist_shift_beam.py", f"--data_dir={folder}"),
        *("--dataset=digits", "--split=test", "--shift=1", "--pad=1"),
        *("--multi_targets", "--max_shard=200", "--seed=5", *flags),
        "--runner=BundleBasedDirectRunner",  # within this process
    )


def test_files_are_those_of_mnist_shift(tmp_path):
    job = pairs_job(tmp_path / "alone", max_shard=200)
    shifted_records.generate(job)
    names = sorted(contents_of(tmp_path / "alone"))
    assert len(names) == 6
    folder = tmp_path / "beam"
    code, _, errors = run(folder, "--num_pairs=3")
    assert code == 0, errors
    assert contents_of(folder) == contents_of(tmp_path / "alone")

    (folder / names[2]).unlink()
    kept = (folder / names[3]).stat().st_mtime_ns
    code, _, errors = run(folder, "--num_pairs=3")
    assert code == 0, errors
    assert contents_of(folder) == contents_of(tmp_path / "alone")
    assert (folder / names[3]).stat().st_mtime_ns == kept


def test_unknown_flag_is_refused(tmp_path):
    code, _, errors = run(tmp_path / "beam", "--num_pair=3")
    assert code == 1
    assert "--num_pair=3" in errors.splitlines()[-1]
    assert not (tmp_path / "beam").exists()
