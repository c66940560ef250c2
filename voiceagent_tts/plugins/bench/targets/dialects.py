"""The client's side of two WebSocket protocols: `tts.v1` and Cartesia's.

Source: `protocol/messages.py`; the types of Cartesia's Python package 4.2.
"""

import json
from base64 import b64decode
from typing import Any
from uuid import uuid4

from voiceagent_tts.client import authorization, websocket_address
from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.plugins.bench.recorder import Recorder
from voiceagent_tts.plugins.bench.targets.sockets import SocketTarget
from voiceagent_tts.plugins.bench.targets.target import Options
from voiceagent_tts.plugins.bench.utterance import Request
from voiceagent_tts.protocol.client_connection import ClientAudio, ClientConnection
from voiceagent_tts.protocol.messages import (
    SUBPROTOCOL,
    CancelledMessage,
    DoneMessage,
    ErrorMessage,
    WordsMessage,
)

_CARTESIA_VERSION = "2025-04-16"


def tts_v1(address: str, options: Options) -> SocketTarget:
    """A server with our own protocol, at an address as the client accepts it."""
    headers = authorization(options.api_key)
    url = websocket_address(address)
    return SocketTarget(url, headers, lambda: _TtsV1Client(options), SUBPROTOCOL)


def cartesia(url: str, options: Options) -> SocketTarget:
    """A server with Cartesia's protocol: audio as base64 in JSON, contexts by id."""
    headers = {"X-API-Key": options.api_key or "none", "Cartesia-Version": _CARTESIA_VERSION}
    return SocketTarget(url, headers, lambda: _CartesiaClient(options))


class _TtsV1Client:
    def __init__(self, options: Options) -> None:
        self._options = options
        self._connection = ClientConnection()
        self.read_greeting = self._connection.receive
        self._context_id = ""
        self._accepts_text = False

    def start(self, request: Request) -> list[str]:
        self._context_id, self._accepts_text = uuid4().hex, True
        fields: dict[str, Any] = {
            "voice": self._options.voice,
            "language": request.language,
            "seed": request.seed,
            **self._options.arguments,
        }
        return [self._connection.open(self._context_id, **fields)]

    def send(self, text: str) -> list[str]:
        return [self._connection.text(self._context_id, text)] if self._accepts_text else []

    def end(self) -> list[str]:
        if not self._accepts_text:
            return []
        self._accepts_text = False
        return [self._connection.end(self._context_id)]

    def cancel(self) -> list[str]:
        self._accepts_text = False
        return [self._connection.cancel(self._context_id)]

    def read(self, data: str | bytes, recorder: Recorder) -> None:
        event = self._connection.receive(data)
        if getattr(event, "context_id", None) != self._context_id:
            return
        match event:
            case ClientAudio():
                recorder.audio(event.pcm)
            case WordsMessage():
                for start_ms in event.start_ms:
                    recorder.word(start_ms / 1000)
            case CancelledMessage():
                recorder.confirm()
            case ErrorMessage():
                self._accepts_text = False
                recorder.fail(event.code, (event.retry_after_ms or 0) / 1000)
            case DoneMessage():
                self._accepts_text = False
                recorder.finish()
            case _:
                pass


class _CartesiaClient:
    read_greeting = None

    def __init__(self, options: Options) -> None:
        self._options = options
        self._context_id = ""
        self._fields: dict[str, Any] = {}

    def start(self, request: Request) -> list[str]:
        self._context_id = uuid4().hex
        self._fields = {
            "model_id": self._options.model or "sonic-3",
            "voice": {"mode": "id", "id": self._options.voice},
            "language": request.language,
            "context_id": self._context_id,
            "output_format": {
                "container": "raw",
                "encoding": "pcm_s16le",
                "sample_rate": SAMPLE_RATE_HZ,
            },
            "add_timestamps": True,
            **self._options.arguments,
        }
        return []

    def send(self, text: str) -> list[str]:
        return [json.dumps({**self._fields, "transcript": text, "continue": True})]

    def end(self) -> list[str]:
        return [json.dumps({**self._fields, "transcript": "", "continue": False})]

    def cancel(self) -> list[str]:
        return [json.dumps({"context_id": self._context_id, "cancel": True})]

    def read(self, data: str | bytes, recorder: Recorder) -> None:
        message = json.loads(data)
        if message.get("context_id") not in (None, self._context_id):
            return
        match message["type"]:
            case "chunk":
                recorder.audio(b64decode(message["data"]))
            case "timestamps":
                for start_s in message["word_timestamps"]["start"]:
                    recorder.word(start_s)
            case "error":
                recorder.fail(str(message.get("error_code", "error")))
            case "done":
                recorder.confirm()
                recorder.finish()
            case _:
                pass
