import subprocess
import sys

import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from common.errors import UserError
from input_data.generators import shifted_records
from input_data.generators.shifted_records_test import contents_of, pairs_job
from input_data.mnist import mnist_shift_beam

# conftest.py collects this file only where Apache Beam is installed.
pytestmark = pytest.mark.slow
COMMAND = mnist_shift_beam.__file__


def some_job(folder, **changes):
    return pairs_job(folder, max_shard=200, **changes)


@pytest.fixture
def options():
    # The DirectRunner within this process, without a Java or Go program.
    return PipelineOptions(["--runner=BundleBasedDirectRunner"])


def test_files_are_those_of_mnist_shift(tmp_path, options):
    paths = shifted_records.generate(some_job(tmp_path / "alone"))
    assert len(paths) == 6
    mnist_shift_beam.generate(some_job(tmp_path / "beam"), options)
    expected = contents_of(tmp_path / "alone")
    assert contents_of(tmp_path / "beam") == expected

    (tmp_path / "beam" / paths[2].name).unlink()
    kept = tmp_path / "beam" / paths[3].name
    before = kept.stat()
    mnist_shift_beam.generate(some_job(tmp_path / "beam"), options)
    assert contents_of(tmp_path / "beam") == expected
    assert kept.stat() == before
    with pytest.raises(UserError):
        mnist_shift_beam.generate(some_job(tmp_path / "beam", seed=6), options)


def run_command(folder, *more):
    return subprocess.run(
        [
            *(sys.executable, COMMAND),
            *(f"--data_dir={folder / 'beam'}", "--dataset=digits"),
            *("--split=test", "--shift=1", "--pad=1", "--multi_targets"),
            *("--max_shard=200", "--seed=5"),
            "--runner=BundleBasedDirectRunner",
            *more,
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_unknown_flag_is_refused(tmp_path):
    result = run_command(tmp_path, "--num_pair=3")
    assert result.returncode == 1
    assert "--num_pair=3" in result.stderr.splitlines()[-1]
    assert not (tmp_path / "beam").exists()


def test_command_from_another_folder(tmp_path):
    shifted_records.generate(some_job(tmp_path / "alone"))
    result = run_command(tmp_path, "--num_pairs=3")
    assert result.returncode == 0, result.stderr
    assert contents_of(tmp_path / "beam") == contents_of(tmp_path / "alone")
