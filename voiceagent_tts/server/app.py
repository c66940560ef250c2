"""The FastAPI app: all routes over one `ServerState`.

Keys and origins are checked before anything else runs, and all HTTP errors have one form.
"""

import asyncio
from dataclasses import dataclass, field

from fastapi import FastAPI, WebSocket
from fastapi.middleware.cors import CORSMiddleware
from python_multipart.multipart import parse_options_header
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from voiceagent_tts import __version__
from voiceagent_tts.errors import (
    ErrorCode,
    InvalidRequestError,
    OverloadedError,
    UnauthorizedError,
    VoiceAgentError,
)
from voiceagent_tts.hooks import plugin_modules
from voiceagent_tts.protocol.server_connection import Dialect
from voiceagent_tts.server import auth, routes
from voiceagent_tts.server.error_answers import answer_errors, refuse
from voiceagent_tts.server.held import HOLD, Hold
from voiceagent_tts.server.request_log import RequestLog
from voiceagent_tts.server.state import ServerHooks, ServerState
from voiceagent_tts.server.websocket import add_socket, refuse_other_sockets, serve_socket

MAX_BODY_BYTES = 1 << 20
_FIELDS = 10_000
"""Values that a JSON body may have besides its text: enough for 64 texts, or for a lexicon."""
_MARKS = (b",", b"[", b"{")  # one of them stands before each value of a JSON body, except the first
_MAX_PARSED_CHARS = 4096
"""60 kB of semicolons in a Content-Type are parsed for 80 ms, of `&` in a query for 170 ms."""
_FORM_CHARSETS = (b"utf-8", b"utf8", b"us-ascii", b"ascii", b"iso-8859-1", b"latin-1", b"latin1")
"""Starlette decodes a form by any codec of Python that the client names, on the event loop: 1 MB of
punycode takes seconds. Python also keeps each unknown name that it was asked for."""
BODY_S = 10.0
"""How long a body may take, besides the time that its bytes take at `_SLOWEST_BYTES_PER_S`."""
_SLOWEST_BYTES_PER_S = 4096
"""Slower bodies are refused: a client that sends part of a body and then waits would keep a
connection open indefinitely."""


def create_app(state: ServerState) -> FastAPI:
    """Create the app with all routes, those of plugins too."""
    app = FastAPI(
        title="voiceagent-tts",
        version=__version__,
        description="Self-hosted, real-time text-to-speech. The WebSocket protocol tts.v1 at "
        "`/v1/tts/ws` is described in docs/protocol.md, and those of other servers in "
        "docs/plugins.md.",
        docs_url=None,  # the plugin `page` has one that loads nothing from other sites
        redoc_url=None,
        openapi_url=None,  # the plugin `openapi` makes one in a thread: it takes 60 ms
    )
    app.state.server = state
    app.state.hooks = hooks = ServerHooks(app, state, ["/health", "/health/*"], {}, [])
    _add_middleware(app, hooks)
    answer_errors(app, state)
    app.include_router(routes.router)

    async def serve(websocket: WebSocket) -> None:
        await serve_socket(state, websocket, lambda _: Dialect())

    add_socket(app, "/v1/tts/ws", serve)
    for plugin in plugin_modules("server"):
        plugin.add_to_server(hooks)
    refuse_other_sockets(app)
    _build_routes(app)
    return app


def _build_routes(app: FastAPI) -> None:
    """Have FastAPI build all routes now: else it does so in the first requests, 58,000 calls."""
    scope = {"type": "http", "method": "GET", "path": "/-", "root_path": "", "headers": []}
    for route in app.routes:
        route.matches(scope)


def _add_middleware(app: FastAPI, hooks: ServerHooks) -> None:
    """Add the middleware, innermost first."""
    app.add_middleware(_Guard, hooks=hooks)
    # Outside of the checks: a browser asks without a key whether it may send one.
    app.add_middleware(
        CORSMiddleware,
        allow_origins=hooks.state.settings.allowed_origins,
        allow_methods=["GET", "POST", "DELETE"],
        allow_headers=["Authorization", "Content-Type", "X-API-Key", "xi-api-key"],
    )
    # Outermost: it also logs requests that the others refuse.
    app.add_middleware(RequestLog)


class _Guard:
    """Checks HTTP requests before they are read, and refuses those that grow too large.

    Keys, scopes and origins come first. Bytes of headers and body count against the caller's memory
    limit until the request is over. JSON is read in one turn of the event loop, which its number of
    values bounds, more than its length.
    """

    def __init__(self, app: ASGIApp, hooks: ServerHooks) -> None:
        self._app = app
        self._hooks = hooks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        hooks, state = self._hooks, self._hooks.state
        upload_bytes = hooks.upload_bytes.get(scope["path"])
        max_bytes = upload_bytes or MAX_BODY_BYTES
        # A text may consist of commas.
        max_marks = None if upload_bytes else state.settings.max_text_chars + _FIELDS
        try:
            if not hooks.is_open(scope["path"]):
                auth.check(state, scope)
        except UnauthorizedError as error:
            await refuse(error, scope, receive, send)
            return
        with Hold(state.held, auth.owner_of(scope)) as hold:
            scope[HOLD] = hold
            try:
                _check_head(scope)
                head_bytes = sum(len(name) + len(value) for name, value in scope["headers"])
                hold.take(head_bytes)
                hold.take(_declared_bytes(scope, max_bytes))  # before any of it is read
            except VoiceAgentError as error:
                await refuse(error, scope, receive, send)
                return
            body = _GuardedBody(receive, max_bytes, max_marks, hold, head_bytes)
            await self._app(scope, body.receive, send)


def _check_head(scope: Scope) -> None:
    """Refuse long queries, and forms in an encoding that takes more than linear time to decode."""
    content_type = Headers(scope=scope).get("content-type", "")
    for name, given in {"Content-Type": content_type, "the query": scope["query_string"]}.items():
        if len(given) > _MAX_PARSED_CHARS:
            raise InvalidRequestError(
                f"{name}: expected at most {_MAX_PARSED_CHARS} characters, got more",
                code=ErrorCode.INVALID_PARAM,
            )
    _, parameters = parse_options_header(content_type)  # as Starlette reads it
    if parameters.get(b"charset", b"utf-8").lower() not in _FORM_CHARSETS:
        raise InvalidRequestError(
            "Content-Type: expected the charset utf-8, us-ascii or iso-8859-1, got another one",
            code=ErrorCode.INVALID_PARAM,
        )


def _declared_bytes(scope: Scope, max_bytes: int) -> int:
    """The length of the body as its client states it; 0 if that is no length or too long."""
    declared = Headers(scope=scope).get("content-length", "")
    size_bytes = int(declared) if declared.isdecimal() and len(declared) < 12 else 0
    return size_bytes if size_bytes <= max_bytes else 0


@dataclass(slots=True)
class _GuardedBody:
    """The body of one request."""

    more: Receive
    max_bytes: int
    max_marks: int | None
    hold: Hold
    head_bytes: int
    deadline: float = field(default_factory=lambda: asyncio.get_running_loop().time() + BODY_S)
    size_bytes: int = 0
    marks: int = 0
    is_complete: bool = False

    async def receive(self) -> Message:
        """Receive a part of the body; when it is complete, wait for the client to disconnect.

        Raises:
            HTTPException: 413, the body is too long or has too many values; 408, it comes too
                slowly; 429, the caller holds too much.
        """
        if self.is_complete:
            return await self.more()
        try:
            async with asyncio.timeout_at(self.deadline + self.size_bytes / _SLOWEST_BYTES_PER_S):
                message = await self.more()
        except TimeoutError:
            sentence = f"expected a body within {BODY_S:g} s, or {_SLOWEST_BYTES_PER_S} bytes/s"
            raise HTTPException(408, sentence) from None
        part: bytes = message.get("body", b"")
        self.size_bytes += len(part)
        try:
            self.hold.take(max(0, self.head_bytes + self.size_bytes - self.hold.taken_bytes))
        except OverloadedError as error:  # the only kind that is not taken for a wrong body
            raise HTTPException(429, error.message) from None
        self.is_complete = not message.get("more_body", False)
        if self.size_bytes > self.max_bytes:
            raise HTTPException(413, f"expected a body of at most {self.max_bytes} bytes")
        if self.max_marks is not None:
            self.marks += sum(part.count(mark) for mark in _MARKS)
            if self.marks > self.max_marks:
                sentence = f"expected a body of at most {self.max_marks} commas and brackets"
                raise HTTPException(413, sentence)
        return message
