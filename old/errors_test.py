from old.errors import UserError


def test_a_message_is_one_short_line_whatever_is_in_it():
    name = "a\nb\x1b[2J" + "x" * 5000
    text = str(UserError(f"{name} cannot be read: No such file"))
    assert len(text.splitlines()) == 1
    assert len(text) < 1000
    assert text.startswith(r"a\nb\x1b[2Jxxx")
    assert text.endswith("xxx cannot be read: No such file")


def test_details_are_lines_of_their_own():
    assert str(UserError("these:", "  a", "  b\r")) == "these:\n  a\n  b\\r"
