import json
import math

import pytest

from common import files
from common.errors import UserError
from common.files import complete_rows, read_json, require

EXAMPLE = {"name": "", "count": 1, "share?": 0.0, "rows": [[0], "one"]}
EXAMPLE["by_key"] = {"*": {"is_right": True}}
RIGHT = {"name": "a", "count": 2, "rows": [[], [3]], "by_key": {}, "more": 1}


def test_documents_like_the_example():
    for share in (1, 0.5, None):
        require({**RIGHT, "share": share}, EXAMPLE)
    require({**RIGHT, "by_key": {"a": {"is_right": False}}}, EXAMPLE)


@pytest.mark.parametrize(
    ("change", "place"),
    [
        *(({"name": 1}, "name"), ({"name": None}, "name")),
        *(({"count": 0}, "count"), ({"count": 1.0}, "count")),
        *(({"count": True}, "count"), ({"count": 2**63}, "count")),
        *(({"share": "1"}, "share"), ({"share": math.nan}, "share")),
        *(({"share": -0.1}, "share"), ({"share": math.inf}, "share")),
        *(({"rows": []}, "rows"), ({"rows": {}}, "rows")),
        *(({"rows": [[1, -1]]}, "rows/0/1"), ({"by_key": []}, "by_key")),
        ({"by_key": {"a": {}}}, "by_key/a/is_right"),
        ({"by_key": {"a": {"is_right": 1}}}, "by_key/a/is_right"),
    ],
)
def test_other_types_are_refused(change, place):
    with pytest.raises(ValueError, match=f"^{place} must not be"):
        require({**RIGHT, **change}, EXAMPLE)


def test_a_document_without_null(tmp_path, monkeypatch):
    monkeypatch.setitem(files.EXAMPLES, "some", EXAMPLE)
    path = tmp_path / "some.json"
    path.write_text(json.dumps({**RIGHT, "share": None}))
    assert read_json(path, "some") == RIGHT
    for text in ("[]", "{", json.dumps({**RIGHT, "name": None})):
        path.write_text(text)
        with pytest.raises(UserError, match=r"some\.json: "):
            read_json(path, "some")


def test_rows_of_csv(tmp_path):
    path = tmp_path / "curve.csv"
    path.write_text("step,loss\n1,nan\n2,0.5\n3")
    assert complete_rows(path, int, float) == ["1,nan", "2,0.5"]
    for row in ("x,1", "1.5,1", "1,2,3", "1"):
        path.write_text(f"step,loss\n{row}\n2,0.5\n")
        with pytest.raises(UserError, match=r"curve\.csv: "):
            complete_rows(path, int, float)
