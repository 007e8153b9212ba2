"""Serves the demo page to browsers on this machine.

Nothing in a request is stored. Other web pages in the same browser may send
requests, too. They are refused: such requests have the page's address in the
header Origin or, if its name resolves to this machine (DNS rebinding), the name
in the header Host.
"""

import asyncio
import contextlib
import ipaddress
import json
import pathlib
import socket
import urllib.parse

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from common.errors import UserError, reading
from demonstration.model import MAX_FILE_BYTES

_PAGE = pathlib.Path(__file__).parent / "page"
_MAX_JSON_BYTES = 2**20
# Seconds in which the body of a request must arrive.
BODY_TIMEOUT = 60
_HEADERS = {
    "Cache-Control": "no-store",
    # The page loads nothing from elsewhere, and no other page may embed it.
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; "
        "base-uri 'none'; form-action 'none'"
    ),
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def make_app(model, host="127.0.0.1"):
    """The `Starlette` application of a `DemoModel` on a host."""
    # One request at a time reads its body and computes, so that memory holds
    # one upload only.
    lock = asyncio.Lock()

    def post(path, answer, max_bytes):
        async def endpoint(request):
            async with lock:
                body = await _read_body(request, max_bytes)
                result = await run_in_threadpool(
                    answer, body, request.query_params
                )
            return JSONResponse(result)

        return Route(path, endpoint, methods=["POST"])

    def file(body, query):
        name = query.get("name", "the file")
        return model.predict_file(body, name, query.get("invert") == "true")

    def test_image(body, query):
        return model.next_test_image(query.get("predicted") == "correct")

    def reconstruction(body, query):
        values = json.loads(body)
        picture = model.reconstruct(values["classes"], values["capsules"])
        return {"reconstruction": picture}

    async def guard(request, call_next):
        name, origin = map(request.headers.get, ("host", "origin"))
        if not _is_own(name, host):
            reason = "open the page by its number, as in http://127.0.0.1:7860/"
            response = _error(reason, 403)
        elif origin not in (None, f"http://{name}"):
            response = _error("other web pages must not use this server", 403)
        else:
            response = await call_next(request)
        response.headers.update(_HEADERS)
        return response

    return Starlette(
        routes=[
            Route("/description", lambda _: JSONResponse(model.description)),
            post(
                "/drawing",
                lambda body, _: model.predict_drawing(body),
                MAX_FILE_BYTES,
            ),
            post("/file", file, MAX_FILE_BYTES),
            post("/test_image", test_image, 0),
            post("/reconstruction", reconstruction, _MAX_JSON_BYTES),
            Mount("/", StaticFiles(directory=_PAGE, html=True)),
        ],
        middleware=[Middleware(BaseHTTPMiddleware, dispatch=guard)],
        exception_handlers={
            UserError: lambda _, error: _error(str(error), 400),
            ClientDisconnect: lambda *_: _error("the request ended early", 400),
            HTTPException: lambda _, error: _error(
                error.detail, error.status_code
            ),
            # Starlette also prints its traceback.
            Exception: lambda *_: _error("demo.py printed an error", 500),
        },
    )


def _error(message, status):
    return JSONResponse({"error": message}, status)


async def _read_body(request, max_bytes):
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT):
            async for chunk in request.stream():
                body += chunk
                if len(body) > max_bytes:
                    raise HTTPException(413, f"more than {max_bytes:,} bytes")
    except TimeoutError:
        raise HTTPException(408, "the request took too long") from None
    return bytes(body)


def _is_own(host, listening_on):
    """Whether a Host is an IP address, localhost or the name in --host."""
    try:
        name = urllib.parse.urlsplit(f"//{host}").hostname
        if name not in ("localhost", listening_on.lower()):
            ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def serve(model, host, port):
    """Serves the page until Ctrl-C.

    Args:
      model: `DemoModel`.
      host: string, address or name to listen on.
      port: int, 0 for a free one.

    Raises:
      UserError: if the address cannot be listened on.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with reading(f"--host={host} --port={port}"):
        listener = socket.create_server((host, port), family=family)
    with listener, contextlib.suppress(KeyboardInterrupt):
        name = f"[{host}]" if ":" in host else host
        address = f"http://{name}:{listener.getsockname()[1]}/"
        print(f"Open {address} (Ctrl-C ends)", flush=True)
        config = uvicorn.Config(
            make_app(model, host),
            log_level="error",
            lifespan="off",
            ws="none",
            server_header=False,
            timeout_graceful_shutdown=1,
        )
        uvicorn.Server(config).run(sockets=[listener])
