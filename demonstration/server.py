"""Serves the page, its files and what it asks, to browsers of one machine.

Nothing of a request is kept: the page sends again what it needs. Other web
pages that the same browser shows are kept out. They may send requests here, but
not without their own address in the header Origin, and a name that they let
point to this machine (DNS rebinding) stands in the header Host.
"""

import contextlib
import http.server
import ipaddress
import json
import pathlib
import socket
import socketserver
import sys
import threading
import time
import urllib.parse

from input_data.formats.image_file import MAX_BYTES
from old.errors import UserError
from old.text import shortened

_FILES = {
    "/": ("page.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
}
_FOLDER = pathlib.Path(__file__).parent / "page"
# Of what is no file; capsules of thousands of atoms have less.
_MOST_BYTES_OF_JSON = 2**20
# Seconds without a byte after which a connection is closed, and in which the
# body of a request must be there.
_TIMEOUT = 60
_SECONDS_TO_READ_ON = 2
_HEADERS = {
    "Cache-Control": "no-store",
    # The page needs nothing from elsewhere, and no other page may show it.
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; "
        "base-uri 'none'; form-action 'none'"
    ),
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class _RefusedError(Exception):
    """A request that is answered by an error: (status, message)."""


class Server(http.server.ThreadingHTTPServer):
    """An HTTP server of one `Exhibit`.

    Args:
      exhibit: `exhibit.Exhibit`.
      host: string, address or name to listen on.
      port: int, 0 for any that is free.

    Attributes:
      exhibit: `exhibit.Exhibit`.
      host: string.
      one_at_a_time: lock; who holds it may read a body and compute, so that
        there is memory for one upload only.

    Raises:
      UserError: if it cannot listen there.
    """

    daemon_threads = True

    def __init__(self, exhibit, host, port):
        self.exhibit = exhibit
        self.host = host
        self.one_at_a_time = threading.Lock()
        if ":" in host:
            self.address_family = socket.AF_INET6
        try:
            super().__init__((host, port), _Handler)
        except OSError as error:
            raise UserError(
                f"--host={host} --port={port} cannot be listened on: "
                f"{error.strerror}. --port=0 takes any free port"
            ) from None

    def server_bind(self):
        # HTTPServer's asks a name server for this machine's name.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]

    @property
    def address(self):
        """What to open in a browser."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.server_port}/"

    def handle_error(self, request, client_address):
        """Errors of ours are printed; a reader that left is none."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "demo", ""
    timeout = _TIMEOUT
    # Header and body are two packets; the second is not to wait for the first.
    disable_nagle_algorithm = True

    def log_message(self, *_):
        """Says nothing."""

    def do_GET(self):
        self._answer(self._get)

    def do_POST(self):
        self._answer(self._post)

    def _answer(self, respond):
        try:
            self._refuse_others()
            kind, content = respond(self._url())
            status = 200
        except UserError as error:
            status = 400
            kind, content = _json({"error": str(error)})
        except _RefusedError as refused:
            status, message = refused.args
            kind, content = _json({"error": message})
            # What was sent may not have been read.
            self.close_connection = True
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        if self.close_connection:
            self.send_header("Connection", "close")
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)
        if self.close_connection:
            self._read_on()

    def _read_on(self):
        """Lets the other side finish what it sends, for a moment.

        With bytes that are not read a connection is reset, and the answer may
        be lost with it.
        """
        until = time.monotonic() + _SECONDS_TO_READ_ON
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            self.connection.settimeout(_SECONDS_TO_READ_ON)
            while self.connection.recv(2**16) and time.monotonic() < until:
                pass

    def _refuse_others(self):
        """Refuses what another web page may have made a browser send."""
        host = self.headers.get("Host", "")
        if not _is_own(host, self.server.host):
            raise _RefusedError(
                403,
                f"Host {shortened(host)} is not this server: open it by its "
                "number, as in http://127.0.0.1:7860/",
            )
        origin = self.headers.get("Origin")
        if origin is not None and origin != f"http://{host}":
            raise _RefusedError(
                403, f"{shortened(origin)} must not use this server"
            )

    def _url(self):
        try:
            return urllib.parse.urlsplit(self.path)
        except ValueError:
            raise _RefusedError(
                400, f"{shortened(self.path)} is no address"
            ) from None

    def _get(self, url):
        path = url.path
        if path == "/exhibit":
            return _json(self.server.exhibit.description)
        if path not in _FILES:
            raise _RefusedError(404, f"there is no {shortened(path)}")
        name, kind = _FILES[path]
        return kind, (_FOLDER / name).read_bytes()

    def _post(self, url):
        asked = dict(urllib.parse.parse_qsl(url.query))
        answers = {
            "/drawing": (_drawing, MAX_BYTES),
            "/file": (_file, MAX_BYTES),
            "/test_image": (_test_image, 0),
            "/remake": (_remake, _MOST_BYTES_OF_JSON),
        }
        if url.path not in answers:
            raise _RefusedError(404, f"there is no {shortened(url.path)}")
        answer, most_bytes = answers[url.path]
        length = self._length(most_bytes)
        with self.server.one_at_a_time:
            body = self._body(length)
            return _json(answer(self.server.exhibit, asked, body))

    def _body(self, length):
        """Reads what others wait for, so not for as long as it likes."""
        until = time.monotonic() + _TIMEOUT
        body = bytearray()
        with contextlib.suppress(TimeoutError):
            while len(body) < length:
                left = until - time.monotonic()
                if left <= 0:
                    break
                self.connection.settimeout(left)
                part = self.rfile.read1(length - len(body))
                if not part:
                    break
                body += part
        self.connection.settimeout(_TIMEOUT)
        if len(body) < length:
            raise _RefusedError(400, "the request ended early or took too long")
        return bytes(body)

    def _length(self, most):
        """The bytes of the body, known before they are read."""
        text = self.headers.get("Content-Length", "")
        if not (text.isascii() and text.isdecimal()):
            raise _RefusedError(411, "a request says how long it is")
        # int() refuses very many digits.
        if len(text) > len(str(MAX_BYTES)) or int(text) > most:
            raise _RefusedError(
                413, f"more than {most:,} bytes are refused here"
            )
        return int(text)


def _is_own(host, listening_on):
    """Whether no name server had a say in a header Host.

    So of numbers and localhost; and of a name that --host gave.
    """
    try:
        name = urllib.parse.urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    if name in ("localhost", listening_on.lower()):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _drawing(exhibit, asked, body):
    return exhibit.look_at_drawing(body)


def _file(exhibit, asked, body):
    name = shortened(asked.get("name", "the file"))
    return exhibit.look_at_file(body, name, asked.get("invert") == "true")


def _test_image(exhibit, asked, body):
    return exhibit.look_at_test_image(asked.get("predicted") == "right")


def _remake(exhibit, asked, body):
    try:
        wanted = json.loads(body)
        classes, capsules = wanted["classes"], wanted["capsules"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UserError("a remake needs JSON: classes, capsules") from None
    return {"remake": exhibit.redraw(classes, capsules)}


def _json(value):
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return "application/json", text.encode()
