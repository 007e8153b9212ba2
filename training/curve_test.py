import pytest

from old.errors import UserError
from training.curve import FILE, Curve, read

HEAD = "step,loss,accuracy\n"


def test_points_are_added_replaced_and_read_again(tmp_path):
    curve = Curve(tmp_path)
    curve.add(10, 0.5, 0.25)
    curve.add(30, 0.1, 1.0)
    curve.add(20, 0.3, 0.75)
    path = tmp_path / FILE
    assert path.read_text() == HEAD + "10,0.5,0.25\n20,0.3,0.75\n30,0.1,1\n"
    resumed = Curve(tmp_path)
    resumed.add(20, float("nan"), 0.5)
    resumed.add(40, 0.05, 1.0)
    assert path.read_text() == (
        HEAD + "10,0.5,0.25\n20,nan,0.5\n30,0.1,1\n40,0.05,1\n"
    )
    assert read(path)[40] == (0.05, 1.0)


def test_half_a_line_of_a_killed_process_is_mended(tmp_path):
    path = tmp_path / FILE
    path.write_text(HEAD + "10,0.5,0.25\n20,0.3,0.7")
    Curve(tmp_path).add(20, 0.3, 0.75)
    assert path.read_text() == HEAD + "10,0.5,0.25\n20,0.3,0.75\n"


def test_no_file_is_no_points(tmp_path):
    assert read(tmp_path / FILE) == {}


@pytest.mark.parametrize(
    "content", ["a,b\n1,2\n", "epoch,loss,acc\n1,0.5,0.9\n", HEAD + "1,2\n"]
)
def test_another_file_of_the_name_is_named_and_stays(tmp_path, content):
    path = tmp_path / FILE
    path.write_text(content)
    with pytest.raises(UserError, match=r"curve\.csv is not a learning curve"):
        Curve(tmp_path)
    assert path.read_text() == content


def test_a_file_that_cannot_be_read_is_not_replaced(tmp_path):
    (tmp_path / FILE).mkdir()
    with pytest.raises(UserError, match=r"curve\.csv cannot be read: Is a dir"):
        Curve(tmp_path)
