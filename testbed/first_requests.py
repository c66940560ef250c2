"""Sends a new server each kind of request once, the first of its process.

For each request `measure` prints a line of JSON: its kind, whether it was answered as expected, the
most calls of functions in one turn of the event loop, and the bytes of the modules that the loop
itself has loaded meanwhile. What a thread loads keeps nobody waiting. Kinds that need a library on
the event loop come before those that may load it in a thread.
"""

import asyncio
import json
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

from testbed.loop_work import loop_work
from testbed.waiting import PATIENCE_S
from voiceagent_tts.config import Settings
from voiceagent_tts.server.serve import running

Request = Callable[[str], bool]
"""Sends a request to a server's URL; returns whether the answer was as expected."""

_TEXT = "Dr. Li paid $3.50, a@b.cd. Hi! "
_WORDS = {"en": _TEXT, "zh": "你好。2024年", "ja": "こんにちは。", "de": "Hallo 27 Leute."}
_RECORDING = (Path(__file__).parents[1] / "tests" / "reference" / "reference.wav").read_bytes()
_SPEECH, _SONIC, _ELEVEN = "/v1/audio/speech", "/tts/bytes", "/v1/text-to-speech/default"
_CARTESIA: dict[str, Any] = {
    "model_id": "sonic-3",
    "voice": {"mode": "id", "id": "default"},
    "language": "en",
    "transcript": _TEXT,
}


class _LoadedOnLoop:
    """Notes the modules that are looked for in the thread of the event loop, as a finder."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self._thread = threading.get_ident()

    def find_spec(self, name: str, *_: object) -> None:
        if threading.get_ident() == self._thread:
            self.names.add(name)

    def pop(self) -> dict[str, int]:
        """The modules that were loaded since the last call, with the bytes of their files."""
        found = {name: _size_of(name) for name in self.names if name in sys.modules}
        self.names.clear()
        return {name: size for name, size in found.items() if size}


def _size_of(module: str) -> int:
    path = getattr(sys.modules[module], "__file__", None)
    return Path(path).stat().st_size if path and Path(path).exists() else 0


def _asks(method: str, path: str, statuses: Sequence[int] = (200,), **options: Any) -> Request:
    def ask(url: str) -> bool:
        answer = httpx.request(method, f"{url}{path}", timeout=PATIENCE_S, **options)
        return answer.status_code in statuses

    return ask


def _speaks(path: str = _SPEECH, **fields: Any) -> Request:
    return _asks("POST", path, json={"input": _TEXT, "response_format": "pcm", **fields})


def _talks(path: str, messages: Sequence[Mapping[str, Any]], last: str) -> Request:
    """Send messages to a socket, and read until one that has `last` in it."""

    def talk(url: str) -> bool:
        with connect(f"{url.replace('http', 'ws', 1)}{path}") as socket:
            for message in messages:
                socket.send(json.dumps(message))
            while True:
                answer = socket.recv(timeout=PATIENCE_S)
                if isinstance(answer, str) and ('"type":"error"' in answer or '"error"' in answer):
                    return False
                if isinstance(answer, str) and last in answer:
                    return True

    return talk


def _context(**options: Any) -> Request:
    about = {"context_id": "a"}
    messages = (
        {"type": "context.open", **about, **options},
        {"type": "text", "text": _TEXT, **about},
        {"type": "flush", "flush_id": 1, **about},
        {"type": "cut", "played_ms": 100, **about},
        {"type": "end", **about},
    )
    return _talks("/v1/tts/ws", messages, '"done"')


def _sonic(**output: Any) -> dict[str, Any]:
    return {**_CARTESIA, "output_format": {"container": "raw", **output}}


def _sockets() -> Iterator[tuple[str, Request]]:
    yield "socket", _context()
    yield "socket: 8000 Hz", _context(audio={"encoding": "pcm_f32le", "sample_rate": 8_000})
    for speed in (1.3, 3.5, 0.3):
        yield f"socket: speed {speed}", _context(speed=speed)
    yield "socket: markup", _context(markup=True)
    yield "socket: lexicon", _context(lexicon={"Hello": "/həˈloʊ/", "there": "their"})
    sonic = {**_sonic(encoding="pcm_s16le", sample_rate=44_100), "context_id": "a"}
    messages = [{**sonic, "add_timestamps": True}]
    yield "Cartesia's socket", _talks("/tts/websocket", messages, '"done":true')
    words = ({"text": " "}, {"text": _TEXT}, {"text": ""})
    for name in ("ulaw_8000", "mp3_44100_128"):
        path = f"{_ELEVEN}/stream-input?output_format={name}&sync_alignment=true"
        yield f"ElevenLabs' socket: {name}", _talks(path, words, '"isFinal":true')


def _files() -> Iterator[tuple[str, Request]]:
    for encoding, rate in (("pcm_f32le", 44_100), ("pcm_mulaw", 8_000)):
        output = {"encoding": encoding, "sample_rate": rate}
        yield f"{_SONIC}: {output}", _asks("POST", _SONIC, json=_sonic(**output))
    yield "speech: 8000 Hz", _speaks(sample_rate=8_000, response_format="wav")
    for speed in (0.3, 1.3, 3.5):
        yield f"speech: speed {speed}", _speaks(speed=speed)
    for language, text in _WORDS.items():
        yield f"speech: {language}", _speaks(input=text, language=language)
        yield f"speech: detected {language}", _speaks(input=text)
    yield "speech: markup", _speaks(input='<break time="9ms"/><spell>abc</spell>.', markup=True)
    yield "speech: lexicon", _speaks(lexicon={"there": {"say": "their", "ipa": "ðɛɹ"}})
    yield "speech: sse", _speaks(stream_format="sse")
    for name in ("wav", "flac", "mp3", "opus", "aac"):
        yield f"speech: whole {name}", _speaks(response_format=name, stream=False)
        yield f"speech: {name}", _speaks(response_format=name)
    for path in ("", "/stream/with-timestamps"):
        asked = f"{_ELEVEN}{path}?output_format=mp3_44100_128"
        yield asked, _asks("POST", asked, json={"text": _TEXT})


def _other_requests() -> Iterator[tuple[str, Request]]:
    for path in (
        "/health/ready",
        "/metrics",
        "/v1/models",
        "/v1/voices",
        "/openapi.json",
        "/",
        "/docs",
    ):
        yield path, _asks("GET", path)
    yield "/nobody", _asks("GET", "/nobody", (404,))
    yield "no JSON", _asks("POST", _SPEECH, (400,), content=b"{")
    yield "no text", _asks("POST", _SPEECH, (400,), json={"input": 3})
    yield "no voice", _asks("POST", _SPEECH, (400,), json={"input": "a", "voice": "nobody"})
    yield "long body", _asks("POST", _SPEECH, (413,), content=b" " * ((1 << 20) + 1))
    sample = {"audio_sample": ("a.wav", _RECORDING, "audio/wav")}
    consent = {"recording": ("a.wav", _RECORDING, "audio/wav")}
    # An engine without clones refuses these once it has read them.
    yield "a voice", _asks("POST", "/v1/audio/voices", (501,), data={"name": "a"}, files=sample)
    form = {"name": "a", "language": "en"}
    yield (
        "a consent",
        _asks("POST", "/v1/audio/voice_consents", (501,), data=form, files=consent),
    )
    detected = {"file": ("a.wav", _RECORDING, "audio/wav")}
    yield "a watermark", _asks("POST", "/v1/provenance/detect", files=detected)


def kinds() -> dict[str, Request]:
    """Every kind of request, by name, in the order in which they are sent."""
    return dict([*_sockets(), *_files(), *_other_requests()])


async def _measure() -> None:
    loaded = _LoadedOnLoop()
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(port=0, engine="espeak", voices_folder=Path(folder))
        async with running(settings) as server:
            sys.meta_path.insert(0, loaded)  # pyright: ignore[reportArgumentType]
            for name, request in kinds().items():
                with pytest.MonkeyPatch.context() as patch, loop_work(patch) as work:
                    await asyncio.sleep(0)
                    is_answered = await asyncio.to_thread(request, server.url)
                line = [name, is_answered, work.most, loaded.pop()]
                print("first:", json.dumps(line), flush=True)
            sys.meta_path.remove(loaded)  # pyright: ignore[reportArgumentType]


def measure() -> None:
    asyncio.run(_measure())
