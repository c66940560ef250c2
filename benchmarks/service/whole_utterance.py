"""A peer: the embedded engine behind an HTTP server that answers with whole utterances.

Most wrappers of speech models look like this: one request at a time, all audio before the first
byte of the answer. Run as a process: `python -m benchmarks.service.whole_utterance`.
"""

import asyncio
import sys

import uvicorn
from fastapi import FastAPI, Response
from pydantic import BaseModel

from voiceagent_tts.espeak.engine import EspeakEngine
from voiceagent_tts.seam.commands import Command, Credit, SpeechOptions, Submit
from voiceagent_tts.seam.events import AudioStep, Event

_UNLIMITED_SAMPLES = 10**12
_VOICE = "default"


class SpeechRequest(BaseModel):
    """The fields of OpenAI's `/v1/audio/speech` that it reads."""

    input: str
    language: str = "en"


class WholeUtterances:
    """Speaks one text after another, each to its end."""

    def __init__(self) -> None:
        self._commands: list[Command] = []
        self._events: list[Event] = []
        self._engine = EspeakEngine(self._take, self._events.append, max_rows=1)
        self._contexts = 0

    def speak(self, text: str, language: str) -> bytes:
        """Return all audio of `text`: PCM16 at 24 kHz."""
        self._contexts += 1
        context = self._contexts
        submit = Submit(context, text, 0, False, _VOICE, language, options=SpeechOptions())
        self._commands = [submit, Credit(context, 0.0, _UNLIMITED_SAMPLES)]
        self._events.clear()
        while self._engine.step() is not None or self._commands:
            pass
        steps = [event for event in self._events if isinstance(event, AudioStep)]
        return b"".join(row.chunk.pcm for step in steps for row in step.rows)

    def _take(self) -> list[Command]:
        taken, self._commands = self._commands, []
        return taken


def make_app() -> FastAPI:
    """The server, without an address."""
    app, voice = FastAPI(), WholeUtterances()

    @app.post("/v1/audio/speech")
    async def speech(request: SpeechRequest) -> Response:  # blocks the event loop, as many do
        return Response(voice.speak(request.input, request.language), media_type="audio/pcm")

    return app


async def serve() -> None:
    """Serve on a free port; the first line of standard output is `ready` and the address."""
    config = uvicorn.Config(make_app(), host="127.0.0.1", port=0, log_level="warning")
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    sys.stdout.write(f"ready http://127.0.0.1:{port}\n")
    sys.stdout.flush()
    await serving


if __name__ == "__main__":
    asyncio.run(serve())
