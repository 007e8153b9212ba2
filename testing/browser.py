"""Drives a page in headless Chromium, by its DevTools protocol over a pipe.

Needs no package: messages are JSON, each ended by a zero byte, on file
descriptors 3 and 4 of the browser (--remote-debugging-pipe).
https://chromedevtools.github.io/devtools-protocol
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

_NAMES = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
)
_SECONDS = 180
# Takes the socket as both descriptors, then becomes the browser.
_AS_PIPE = (
    "import os, sys; n = int(sys.argv[1]); os.dup2(n, 3); os.dup2(n, 4); "
    "os.execv(sys.argv[2], sys.argv[2:])"
)


def find():
    """The path of a Chromium, or None."""
    return next(filter(None, map(shutil.which, _NAMES)), None)


@contextlib.contextmanager
def opened(address, width=1280, height=1000):
    """A context with a `Page` in a browser of its own.

    Args:
      address: string.
      width: int, pixels of the window.
      height: int, the same.
    """
    ours, theirs = socket.socketpair()
    with ours, tempfile.TemporaryDirectory() as profile:
        with theirs:
            # In a group of its own, so that its helpers end with it.
            process = subprocess.Popen(
                [
                    *(sys.executable, "-c", _AS_PIPE, str(theirs.fileno())),
                    *(find(), "--headless", "--remote-debugging-pipe"),
                    *("--no-sandbox", "--no-first-run", "--disable-gpu"),
                    *(f"--user-data-dir={profile}", "--hide-scrollbars"),
                ],
                pass_fds=[theirs.fileno()],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        try:
            yield Page(ours, address, width, height)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


class Page:
    """A page in the browser at the other end of a socket.

    Args:
      connection: `socket.socket`.
      address: string.
      width, height: int, pixels of the window.

    Attributes:
      complaints: list of strings, what the browser had to complain of:
        exceptions, and what the page was not allowed to load.
    """

    def __init__(self, connection, address, width, height):
        connection.settimeout(_SECONDS)
        self._connection = connection
        self._received = b""
        self._number = 0
        self._session = {}
        self.complaints = []
        target = self.call("Target.createTarget", url="about:blank")
        self._session = {
            "sessionId": self.call(
                "Target.attachToTarget", flatten=True, **target
            )["sessionId"]
        }
        for part in ("Page", "Runtime", "Log", "DOM"):
            self.call(f"{part}.enable")
        self.resize(width, height)
        self.call("Page.navigate", url=address)
        self.wait("document.readyState === 'complete'")

    def call(self, method, **parameters):
        """Calls a method of the protocol; gives its result, a dict."""
        self._number += 1
        message = {
            **self._session,
            "id": self._number,
            "method": method,
            "params": parameters,
        }
        self._connection.sendall(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            if answer.get("method") in (
                "Runtime.exceptionThrown",
                "Log.entryAdded",
            ):
                self.complaints.append(json.dumps(answer["params"]))

    def _receive(self):
        while b"\0" not in self._received:
            part = self._connection.recv(2**20)
            assert part, "the browser ended"
            self._received += part
        message, _, self._received = self._received.partition(b"\0")
        return json.loads(message)

    def evaluate(self, expression):
        """The value of a JavaScript expression, awaited if it is a promise."""
        answer = self.call(
            "Runtime.evaluate",
            expression=expression,
            awaitPromise=True,
            returnByValue=True,
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait(self, condition):
        """Waits until a JavaScript expression is true; gives its value."""
        deadline = time.monotonic() + _SECONDS
        while not (value := self.evaluate(condition)):
            assert time.monotonic() < deadline, condition
            time.sleep(0.02)
        return value

    def resize(self, width, height):
        """Gives the window a size in pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def stroke(self, selector, points):
        """Draws on an element by the mouse.

        Args:
          selector: string, CSS.
          points: pairs of x and y, shares of its width and height.
        """
        left, top, width, height = self._box(selector)
        kinds = ["mousePressed", *["mouseMoved"] * len(points[1:])]
        for (x, y), kind in zip(points, kinds, strict=True):
            self._mouse(kind, left + x * width, top + y * height)
        x, y = points[-1]
        self._mouse("mouseReleased", left + x * width, top + y * height)

    def click(self, selector):
        """Clicks in the middle of an element."""
        self.stroke(selector, [(0.5, 0.5)])

    def _mouse(self, kind, x, y):
        self.call(
            "Input.dispatchMouseEvent",
            type=kind,
            x=x,
            y=y,
            button="left",
            buttons=0 if kind == "mouseReleased" else 1,
            clickCount=1,
        )

    def _box(self, selector):
        return self.evaluate(
            f"(() => {{ const e = document.querySelector({selector!r}); "
            "e.scrollIntoView({block: 'center'}); "
            "const b = e.getBoundingClientRect(); "
            "return [b.left, b.top, b.width, b.height]; })()"
        )

    def choose_file(self, selector, path):
        """Gives a file to an input element."""
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=selector)
        self.call("DOM.setFileInputFiles", files=[str(path)], **node)
