import pytest

from input_data.formats import mnist_records
from old.errors import UserError


def test_shard_paths(tmp_path):
    assert mnist_records.names_shards("folder/some.tfrecords@10")
    assert not mnist_records.names_shards("user@host/folder")
    (tmp_path / "folder@10").mkdir()
    assert not mnist_records.names_shards(tmp_path / "folder@10")
    for shard in (0, 2):
        (tmp_path / f"a.tfrecords-0000{shard}-of-00004").touch()
    (tmp_path / "a.tfrecords-00000-of-00001").touch()
    message = (
        f"@4: there is {tmp_path}/a.tfrecords@1; 2 of 4 files are missing in "
        f"{tmp_path}: a.tfrecords-00001-of-00004, a.tfrecords-00003-of-00004$"
    )
    with pytest.raises(UserError, match=message):
        mnist_records.shard_paths(f"{tmp_path}/a.tfrecords@4")
    message = r"(, a\.tf[-a-z0-9]*){2} and 99,996 more$"
    with pytest.raises(UserError, match=message):
        mnist_records.shard_paths(f"{tmp_path}/a.tfrecords@99999")
    assert mnist_records.shard_paths(f"{tmp_path}/a.tfrecords@1") == [
        tmp_path / "a.tfrecords-00000-of-00001"
    ]
    with pytest.raises(UserError, match="1 of 1 files are missing in /: "):
        mnist_records.shard_paths("/@1")
    with pytest.raises(UserError, match="names no files"):
        mnist_records.shard_paths(f"{tmp_path}/a.tfrecords@0")


@pytest.mark.parametrize("count", ["100000", "99999999999", "9" * 5000])
def test_more_shards_than_names_have_room_for(tmp_path, count):
    with pytest.raises(UserError, match="too many files: at most 99,999"):
        mnist_records.shard_paths(f"{tmp_path}/a.tfrecords@{count}")
