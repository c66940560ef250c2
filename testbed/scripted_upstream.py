"""A server with the speech API of OpenAI that fails as a test says: status, pauses, breaks."""

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

TONE = b"\x00\x20\x00\xe0" * 1200
"""A tenth of a second of PCM at 24 kHz, which is loud."""


@dataclass(frozen=True)
class Answer:
    """What a request gets.

    Attributes:
        status: HTTP status.
        body: what is sent at once.
        headers: besides those of HTTP.
        breaks_off: whether the connection is reset after the body.
        hangs: whether the connection stays open after the body, without an end.
        is_silent: whether nothing is sent at all.
    """

    status: int = 200
    body: bytes = TONE
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "audio/pcm"})
    breaks_off: bool = False
    hangs: bool = False
    is_silent: bool = False


class ScriptedUpstream:
    """Answers requests for speech in the order of a script, and then with a tone.

    Attributes:
        script: the next answers.
        voices: the body of `GET /v1/audio/voices`; None for 404.
        requests: bodies of the requests for speech so far.
        keys: their Authorization headers.
        closed_by_client: connections that the client has closed before the end.
        most_at_once: largest number of requests that were answered at the same time.
    """

    def __init__(self) -> None:
        self.script: deque[Answer] = deque()
        self.voices: Any = {"voices": ["anna", "bert"]}
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.closed_by_client = 0
        self.most_at_once = 0
        self._at_once = 0

    @contextlib.asynccontextmanager
    async def running(self, port: int = 0) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        host, port = server.sockets[0].getsockname()
        try:
            yield f"http://{host}:{port}/v1"
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            fields = dict(
                line.lower().split(": ", 1) for line in head.splitlines()[1:] if ": " in line
            )
            body = await reader.readexactly(int(fields.get("content-length", 0)))
            if head.startswith("GET"):
                await self._send(writer, self._list_voices())
            else:
                self.requests.append(json.loads(body))
                self.keys.append(fields.get("authorization"))
                await self._speak(reader, writer)
        writer.close()

    async def _speak(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            answer = self.script.popleft() if self.script else Answer()
            await self._send(writer, answer)
            if answer.hangs or answer.is_silent:
                await reader.read()
                self.closed_by_client += 1
        finally:
            self._at_once -= 1

    def _list_voices(self) -> Answer:
        if self.voices is None:
            return Answer(404, b"{}", {"Content-Type": "application/json"})
        return Answer(200, json.dumps(self.voices).encode(), {"Content-Type": "application/json"})

    async def _send(self, writer: asyncio.StreamWriter, answer: Answer) -> None:
        if answer.is_silent:
            return
        headers = {**answer.headers, "Transfer-Encoding": "chunked", "Connection": "close"}
        lines = [f"HTTP/1.1 {answer.status} X", *(f"{k}: {v}" for k, v in headers.items())]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        if answer.body:
            writer.write(f"{len(answer.body):x}\r\n".encode() + answer.body + b"\r\n")
        await writer.drain()
        if answer.breaks_off:
            writer.transport.abort()
        elif not answer.hangs:
            writer.write(b"0\r\n\r\n")
            await writer.drain()
