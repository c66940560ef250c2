"""A server with the speech API of OpenAI that fails as a test says: status, pauses, breaks."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from testbed.openai_server import openai_server

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
        """Answer within the block; yields the address of the API."""
        answers = {"audio_speech": self._speak}
        async with openai_server(port, get={"audio_voices": self._list_voices}, **answers) as url:
            yield url

    async def _list_voices(self, _: web.Request) -> web.Response:
        return web.json_response(self.voices, status=404 if self.voices is None else 200)

    async def _speak(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(await request.json())
        self.keys.append(request.headers.get("Authorization"))
        answer = self.script.popleft() if self.script else Answer()
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            return await _sent(answer, request)
        except asyncio.CancelledError:
            self.closed_by_client += 1
            raise
        finally:
            self._at_once -= 1


async def _sent(answer: Answer, request: web.Request) -> web.StreamResponse:
    if answer.is_silent:
        await asyncio.Event().wait()
    response = web.StreamResponse(status=answer.status, headers=answer.headers)
    response.force_close()
    await response.prepare(request)
    await response.write(answer.body)
    if answer.breaks_off:
        assert request.transport is not None
        request.transport.abort()
    elif answer.hangs:
        await asyncio.Event().wait()
    return response
