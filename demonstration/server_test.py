import http.client
import json
import os
import sys
import threading
import time

import numpy as np
import pytest

from demonstration import server
from demonstration.exhibit_test import load, png, save
from input_data.formats.image_file import MAX_BYTES
from old.errors import UserError

# What the audit hook sees while it is to look: files opened for writing.
_written = None


def _note_written(event, arguments):
    if _written is not None and event == "open":
        path, _, flags = arguments
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            _written.append(path)


sys.addaudithook(_note_written)


@pytest.fixture(scope="module")
def listening(tmp_path_factory):
    exhibit = load(save(tmp_path_factory.mktemp("network")))
    exhibit.warm_up()
    with server.Server(exhibit, "127.0.0.1", 0) as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def ask(listening, method, path, body=None, **headers):
    """Status, headers and content of an answer."""
    connection = http.client.HTTPConnection(*listening.server_address)
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    if answer.headers.get_content_type() == "application/json":
        content = json.loads(content)
    return answer.status, answer.headers, content


def test_the_page_and_its_files_need_nothing_from_elsewhere(listening):
    for path, kind in (
        ("/", "text/html"),
        ("/page.css", "text/css"),
        ("/page.js", "text/javascript"),
    ):
        status, headers, content = ask(listening, "GET", path)
        assert status == 200
        assert headers.get_content_type() == kind
        assert b"http" not in content
        assert "default-src 'self'" in headers["Content-Security-Policy"]
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert ask(listening, "GET", "/exhibit")[2]["height"] == 28
    assert ask(listening, "GET", "/../server.py")[0] == 404


def test_drawing_file_and_remake(listening):
    ink = np.zeros((280, 280, 3), np.uint8)
    ink[50:200, 100:140] = 255
    status, _, drawn = ask(listening, "POST", "/drawing", png(ink))
    assert status == 200
    assert len(drawn["lengths"]) == 10
    assert drawn["remake"].startswith("data:image/png;base64,")
    _, _, dark = ask(listening, "POST", "/file?invert=true", png(255 - ink))
    _, _, bright = ask(listening, "POST", "/file?invert=false", png(ink))
    assert dark == bright
    wanted = {"classes": [2], "capsules": [bright["capsules"][2]]}
    _, _, remade = ask(listening, "POST", "/remake", json.dumps(wanted))
    wanted["capsules"][0][0] += 0.5
    _, _, moved = ask(listening, "POST", "/remake", json.dumps(wanted))
    assert remade["remake"] != moved["remake"]
    _, _, test_image = ask(listening, "POST", "/test_image?predicted=wrong")
    assert test_image["predicted"] != test_image["labels"]


def test_nothing_is_written(listening, tmp_path):
    global _written
    image = np.random.default_rng(0).integers(0, 256, (1000, 1000, 3))
    content = png(image.astype(np.uint8))
    _written = []
    try:
        (tmp_path / "proof").write_text("")
        status, _, _ = ask(listening, "POST", "/file", content)
        seen = _written
    finally:
        _written = None
    assert status == 200
    assert [str(path) for path in seen] == [str(tmp_path / "proof")]


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        (
            "/file?name=%3Cb%3E%1b.png",
            png(np.zeros((9, 9), np.uint8))[:-20],
            400,
            "<b>\\x1b.png is not a sound PNG, JPEG, BMP, GIF or WebP image",
        ),
        ("/drawing", b"", 400, "the drawing is not a sound PNG"),
        ("/remake", b"[" * 10**5, 400, "a remake needs JSON"),
        ("/remake", b"{}", 400, "a remake needs JSON"),
        ("/remake", b"[]", 400, "a remake needs JSON"),
        ("/remake", b'{"classes": 1, "capsules": 2}', 400, "one or two"),
        ("/remake", b" " * (2**20 + 1), 413, "more than 1,048,576 bytes"),
        ("/nothing", b"", 404, "there is no /nothing"),
    ],
)
def test_what_is_not_right_is_one_line(listening, path, body, status, message):
    found, _, content = ask(listening, "POST", path, body)
    assert found == status
    assert message in content["error"]
    assert "\n" not in content["error"]


@pytest.mark.parametrize(
    ("length", "status"),
    [(MAX_BYTES + 1, 413), ("9" * 5000, 413), ("-1", 411), ("", 411)],
)
def test_a_body_is_refused_before_it_is_read(listening, length, status):
    connection = http.client.HTTPConnection(*listening.server_address)
    connection.putrequest("POST", "/file")
    connection.putheader("Content-Length", str(length).encode())
    connection.endheaders()
    answer = connection.getresponse()
    assert answer.status == status
    assert answer.headers["Connection"] == "close"
    connection.close()


def test_who_is_refused_may_finish_and_then_reads_why(listening):
    def parts():
        for _ in range(9):
            yield bytes(2**17)
            time.sleep(0.05)  # refused meanwhile

    length = {"Content-Length": str(9 * 2**17)}
    status, _, content = ask(listening, "POST", "/remake", parts(), **length)
    assert (status, content["error"][:9]) == (413, "more than")


def test_a_body_without_a_length_is_refused(listening):
    status, _, content = ask(
        listening, "POST", "/file", iter([b"x"]), **{"Transfer-Encoding": "x"}
    )
    assert (status, content["error"]) == (411, "a request says how long it is")


def test_a_slow_body_does_not_keep_others_waiting(listening, monkeypatch):
    monkeypatch.setattr(server, "_TIMEOUT", 2)
    connection = http.client.HTTPConnection(*listening.server_address)
    connection.putrequest("POST", "/remake")
    connection.putheader("Content-Length", "99")
    connection.endheaders(b" ")
    time.sleep(1)
    connection.send(b" ")
    start = time.monotonic()
    answer = connection.getresponse()
    # Two seconds from the first byte on, not from this one on.
    assert time.monotonic() - start < 1.9
    assert answer.status == 400
    assert b"took too long" in answer.read()
    connection.close()


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_what_is_no_address_is_refused(listening, method):
    connection = http.client.HTTPConnection(*listening.server_address)
    connection.putrequest(method, "http://[", skip_host=True)
    connection.putheader("Host", "localhost")
    connection.endheaders()
    answer = connection.getresponse()
    assert answer.status == 400
    assert json.loads(answer.read()) == {"error": "http://[ is no address"}
    connection.close()


def test_other_web_pages_are_kept_out(listening):
    port = listening.server_port
    for headers, status in (
        ({"Host": f"127.0.0.1:{port}"}, 200),
        ({"Host": f"localhost:{port}"}, 200),
        ({"Host": "[::1]:8000"}, 200),
        # A name that points here, and what tries to look like a number.
        ({"Host": f"evil.example:{port}"}, 403),
        ({"Host": "127.0.0.1.evil.example"}, 403),
        ({"Host": "[::1"}, 403),
        ({"Host": ""}, 403),
        (
            {"Host": f"localhost:{port}", "Origin": f"http://localhost:{port}"},
            200,
        ),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": f"http://localhost:{port + 1}"}, 403),
    ):
        for method, path in (("GET", "/exhibit"), ("POST", "/test_image")):
            found, answered, content = ask(listening, method, path, **headers)
            assert (found, headers) == (status, headers)
            assert "Access-Control-Allow-Origin" not in answered
            assert ("error" in content) == (status == 403)


def test_a_reader_that_left_and_a_request_that_ends_early(listening, capsys):
    connection = http.client.HTTPConnection(*listening.server_address)
    connection.putrequest("POST", "/file")
    connection.putheader("Content-Length", "1000")
    connection.endheaders(b"few")
    connection.sock.shutdown(1)
    assert connection.getresponse().status == 400
    connection.close()
    assert ask(listening, "GET", "/")[0] == 200
    assert capsys.readouterr().err == ""


def test_where_it_listens(listening):
    assert listening.server_address[0] == "127.0.0.1"
    assert listening.address == f"http://127.0.0.1:{listening.server_port}/"
    with pytest.raises(UserError, match="Address already in use. --port=0"):
        server.Server(None, "127.0.0.1", listening.server_port)
    with pytest.raises(UserError, match="--host=192.0.2.1 --port=0 cannot be"):
        server.Server(None, "192.0.2.1", 0)
