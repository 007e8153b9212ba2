"""Serves the demo page to browsers on this machine.

Nothing in a request is stored. The server refuses requests from other web pages
in the same browser: their Origin header names another page. To prevent DNS
rebinding, the Host header must be an IP address, localhost or --host.
"""

import asyncio
import contextlib
import inspect
import ipaddress
import json
import pathlib
import socket
import urllib.parse

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from common.errors import UserError, user_errors

_PAGE = pathlib.Path(__file__).parent / "page"
# Largest size of a request, such as an image file.
MAX_BODY_BYTES = 2**26
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
    """The `Starlette` application that serves a `DemoModel` on a host."""
    lock = asyncio.Lock()  # one request at a time computes

    async def read(request):
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_BODY_BYTES:
                raise UserError("the file is too large")
        return bytes(body)

    def post(answer):
        async def endpoint(request):
            body, query = await read(request), request.query_params
            with user_errors("the query"):
                inspect.signature(answer).bind(body, **query)
            async with lock:
                result = await run_in_threadpool(answer, body, **query)
            return JSONResponse(result)

        return Route(f"/{answer.__name__}", endpoint, methods=["POST"])

    def drawing(body):
        return model.predict_drawing(body)

    def file(body, name, invert="false"):
        return model.predict(model.prepare(body, name, invert == "true"))

    def test_image(body, predicted):
        return model.next_test_image(predicted == "correct")

    def reconstruction(body):
        with user_errors("the request"):
            return {"reconstruction": model.reconstruct(**json.loads(body))}

    async def guard(request, call_next):
        name, origin = map(request.headers.get, ("host", "origin"))
        if not _is_own(name, host):
            reason = "open the page by IP address, as http://127.0.0.1:7860/"
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
            *map(post, (drawing, file, test_image, reconstruction)),
            Mount("/", StaticFiles(directory=_PAGE, html=True)),
        ],
        middleware=[Middleware(BaseHTTPMiddleware, dispatch=guard)],
        exception_handlers={
            UserError: lambda _, error: _error(str(error), 400),
            ClientDisconnect: lambda *_: _error("the request ended early", 400),
            # Starlette also prints its traceback.
            Exception: lambda *_: _error(
                "internal error: see the output of demo.py", 500
            ),
        },
    )


def _error(message, status):
    return JSONResponse({"error": message}, status)


def _is_own(host, listening_on):
    try:
        name = urllib.parse.urlsplit(f"//{host}").hostname
        if name not in ("localhost", listening_on.lower()):
            ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def serve(model, host, port):
    """Serves the page of a `DemoModel` until Ctrl-C."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with user_errors(f"--host={host} --port={port}"):
        listener = socket.create_server((host, port), family=family)
    with listener, contextlib.suppress(KeyboardInterrupt):
        name = f"[{host}]" if ":" in host else host
        address = f"http://{name}:{listener.getsockname()[1]}/"
        print(f"Open {address} (Ctrl-C ends)", flush=True)
        app = make_app(model, host)
        config = uvicorn.Config(
            app, log_level="error", timeout_graceful_shutdown=1
        )
        uvicorn.Server(config).run(sockets=[listener])
