"""A server with the realtime speech API of Model Studio, as documented, that fails as a test says.

It checks the order of a client's messages as the service does: the configuration comes before the
text, and does not change afterwards.
"""

import asyncio
import base64
import contextlib
import http
import itertools
import json
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from testbed.scripted_upstream import TONE

_DELTA_BYTES = 1001  # a sample may be cut in two


@dataclass(frozen=True)
class Script:
    """What the next commit gets.

    Attributes:
        pcm: the audio.
        error: code of an `error` event instead.
        sends: a message instead, as it is.
        breaks_off: whether the connection is aborted after the audio.
        hangs: whether nothing follows the audio.
        closes_after: whether the service closes the session after the response.
    """

    pcm: bytes = TONE
    error: str | None = None
    sends: str | bytes | None = None
    breaks_off: bool = False
    hangs: bool = False
    closes_after: bool = False


class ScriptedRealtime:
    """Serves sessions in the order of a script, and then with tones.

    Attributes:
        script: what the next commits get.
        refusals: HTTP statuses of the next handshakes.
        sessions: configurations of the sessions so far.
        texts: committed texts so far.
        paths: paths of the handshakes, with their queries.
        keys: their Authorization headers.
        closed_by_client: sessions that the client has closed.
    """

    def __init__(self) -> None:
        self.script: deque[Script] = deque()
        self.refusals: deque[int] = deque()
        self.sessions: list[dict[str, Any]] = []
        self.texts: list[str] = []
        self.paths: list[str] = []
        self.keys: list[str | None] = []
        self.closed_by_client = 0
        self._numbers = itertools.count()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        """Serve within the block; yields the address of the API."""
        async with serve(
            self._serve, "127.0.0.1", 0, process_request=self._admit, close_timeout=0.1
        ) as server:
            host, port = next(iter(server.sockets)).getsockname()
            yield f"ws://{host}:{port}/api-ws/v1/realtime"

    def _admit(self, connection: ServerConnection, request: Request) -> Response | None:
        self.paths.append(request.path)
        self.keys.append(request.headers.get("Authorization"))
        if not self.refusals:
            return None
        return connection.respond(http.HTTPStatus(self.refusals.popleft()), "{}")

    async def _serve(self, connection: ServerConnection) -> None:
        session = {"object": "realtime.session", "mode": "server_commit", "id": self._id("sess")}
        await self._send(connection, "session.created", session=session)
        text, is_begun = "", False
        try:
            async for raw in connection:
                event = json.loads(raw)
                match event["type"]:
                    case "session.update" if not is_begun:
                        self.sessions.append(event["session"])
                        changed = session | event["session"]
                        await self._send(connection, "session.updated", session=changed)
                    case "input_text_buffer.append":
                        text, is_begun = text + event["text"], True
                    case "input_text_buffer.commit":
                        self.texts.append(text)
                        text = ""
                        await self._respond(connection)
                    case _:
                        await self._fail(connection, "invalid_value")
        except ConnectionClosed:
            pass
        self.closed_by_client += 1

    async def _respond(self, connection: ServerConnection) -> None:
        script = self.script.popleft() if self.script else Script()
        if script.sends is not None:
            await connection.send(script.sends)
        if script.error is not None:
            await self._fail(connection, script.error)
        if script.sends is not None or script.error is not None:
            return
        await self._send(connection, "input_text_buffer.committed", item_id="")
        await self._send_response(connection, script)
        if script.closes_after:
            await connection.close()

    async def _send_response(self, connection: ServerConnection, script: Script) -> None:
        response, item = self._id("resp"), self._id("item")
        place = {"response_id": response, "item_id": item, "output_index": 0, "content_index": 0}
        await self._send(connection, "response.created", response={"id": response})
        await self._send(connection, "response.output_item.added", response_id=response)
        await self._send(connection, "response.content_part.added", **place)
        for start in range(0, len(script.pcm), _DELTA_BYTES):
            delta = base64.b64encode(script.pcm[start : start + _DELTA_BYTES]).decode()
            await self._send(connection, "response.audio.delta", **place, delta=delta)
        if script.breaks_off:
            await asyncio.sleep(0)  # the audio is in the send buffer of the operating system
            connection.transport.close()
        if script.breaks_off or script.hangs:
            return
        await self._send(connection, "response.audio.done", **place)
        await self._send(connection, "response.content_part.done", **place)
        await self._send(connection, "response.output_item.done", response_id=response)
        await self._send(connection, "response.done", response={"id": response})

    async def _fail(self, connection: ServerConnection, code: str) -> None:
        error = {"code": code, "message": "Hello. is a secret text"}
        await self._send(connection, "error", error=error)

    async def _send(self, connection: ServerConnection, kind: str, **fields: Any) -> None:
        event = {"event_id": self._id("event"), "type": kind, **fields}
        await connection.send(json.dumps(event))

    def _id(self, kind: str) -> str:
        return f"{kind}_{next(self._numbers)}"
