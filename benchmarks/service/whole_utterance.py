"""A peer: the embedded engine behind an HTTP server that answers with whole utterances.

Most wrappers of speech models look like this: one request at a time, all audio before the first
byte of the answer. Run as a process: `python -m benchmarks.service.whole_utterance`.
"""

import socket
from functools import partial

import uvicorn
from fastapi import FastAPI, Response
from pydantic import BaseModel

from testbed.segment_driving import Driver
from voiceagent_tts.espeak.engine import EspeakEngine


class SpeechRequest(BaseModel):
    """The fields of OpenAI's `/v1/audio/speech` that it reads."""

    input: str
    language: str = "en"


def make_app() -> FastAPI:
    """The server, without an address."""
    app, engine = FastAPI(), Driver(partial(EspeakEngine, max_rows=1))

    @app.post("/v1/audio/speech")
    async def speech(request: SpeechRequest) -> Response:  # blocks the event loop, as many do
        engine.events.clear()
        return Response(engine.speak(request.input, request.language), media_type="audio/pcm")

    return app


def serve() -> None:
    """Serve on a free port; the first line of standard output is `ready` and the address."""
    config = uvicorn.Config(make_app(), log_level="warning")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(f"ready http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
        uvicorn.Server(config).run([listening])


if __name__ == "__main__":
    serve()
