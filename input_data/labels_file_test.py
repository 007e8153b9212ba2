import re

import pytest

from common.errors import UserError
from input_data.labels_file import read_labels

NFC, NFD = "caf\u00e9", "cafe\u0301"
BOTH = {"1.png": ["cat"], "a/2.png": ["cat", "dog"], "3.png": []}


def read(folder, text, name="labels.csv"):
    (folder / name).write_bytes(text.encode("utf-8", "surrogatepass"))
    classes, labels = read_labels(folder)
    return classes, {
        path.relative_to(folder).as_posix(): found
        for path, found in labels.items()
    }


@pytest.mark.parametrize(
    "text",
    [
        "file,label\n1.png,cat\na/2.png,cat,dog\n3.png\n",
        "\ufefffile,label,,\r\n./1.png,,cat\r\na/2.png,cat,dog,\r\n\r\n3.png,,",
        '"file","label"\r1.png,"cat"\ra//2.png, cat ,"dog"\r3.png,',
        "file,class,other\n1.png,cat\na/2.png,cat,dog\n3.png",
        "file,cat,dog\n1.png,1,0\na/2.png,1,1\n3.png,0,0\n",
        "file,cat,dog\n1.png,TRUE,False\na/2.png,1.0, 1\n3.png,0,0.0,,\n",
    ],
)
def test_two_forms(tmp_path, text):
    for name in ("Labels.CSV", "labels.csv"):
        assert read(tmp_path, text, name) == (["cat", "dog"], BOTH)


def test_classes(tmp_path):
    for text, classes, first in (
        ("file,label\n1.png,0\n2.png,1\n3.png,7", ["0", "1", "7"], ["0"]),
        ("file,dog,cat\n1.png,0,1\n2.png,0,0", ["cat", "dog"], ["cat"]),
        (f"file,label\n1.png,{NFD}\n2.png,{NFC}", [NFC], [NFC]),
        (f"file,{NFD},b\n1.png,1,0", ["b", NFC], [NFC]),
        ('file,label\n"1,.png","cat, big"', ["cat, big"], ["cat, big"]),
        ("file\n1.png", [], []),
    ):
        found, labels = read(tmp_path, text)
        assert (found, next(iter(labels.values()))) == (classes, first)


def test_unsuitable_files_are_named_with_the_row(tmp_path):
    for text, shown in (
        *(("", "'file,'"), ("filename,label\n1.png,cat", "'filename,label'")),
        ("file\tlabel\n1.png\tcat", r"'file\tlabel'"),
        ("file,label\n1.png,cat\n./1.png,dog", "twice"),
        ("file,label\n/etc/x.png,cat", "/etc/x.png"),
        ("file,label\na/../../x.png,cat", "a/../../x.png"),
        *(("file,label\n,cat", "',cat'"), ("file,label\n1.p,\ud800", "utf-8")),
        ('file,label\n1.png,"cat\n2.png,dog\n3.png,"dog"', "unexpected end"),
        ('file,label\n1.png,cat\n2.png,dog"', "2.png"),
        ('file,label\n1.png,"cat, ""big"""', "quotes"),
        ("file,cat,dog\n1.png,1,0\n2.png,1,-1", "2.png,1,-1"),
        ("file,cat,dog\n1.png,1,0\n2.png,1,", "'2.png,1'"),
        ("file,cat,dog\n1.png,1,0\n2.png,1,0,1", "2.png,1,0,1"),
        ("file,cat,dog\n1.png,1,0\n2.png,dog", "2.png,dog"),
    ):
        message = f"labels.csv: .*{re.escape(shown)}"
        with pytest.raises(UserError, match=message):
            read(tmp_path, text)


def test_a_missing_file_is_none_and_a_dangling_link_is_named(tmp_path):
    assert read_labels(tmp_path) is None
    (tmp_path / "labels.csv").symlink_to("unmounted")
    with pytest.raises(UserError, match=r"labels\.csv"):
        read_labels(tmp_path)
