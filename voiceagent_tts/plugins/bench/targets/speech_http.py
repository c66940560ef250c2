"""Servers behind HTTP: one request for a text, audio as the body of the answer arrives.

They have OpenAI's `/v1/audio/speech`, or the form of the server in the package `pocket-tts`. A text
that is still being written is sent when its last piece is known, because a request has no way to
append to it.
"""

import asyncio
import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import aiohttp

from voiceagent_tts.client import authorization
from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ
from voiceagent_tts.errors import ConnectionLostError, ErrorCode
from voiceagent_tts.plugins.bench.recorder import Recorder
from voiceagent_tts.plugins.bench.targets.target import Connection, Options
from voiceagent_tts.plugins.bench.utterance import Request

_PATH = "/v1/audio/speech"
_TIMEOUT_S = 120.0
_RIFF_HEADER_BYTES = 12
BodyOf = Callable[[str], dict[str, Any]]
"""Text to the arguments of aiohttp that carry it."""


class SpeechTarget:
    """A server behind HTTP.

    Args:
        url: address of the requests.
        headers: headers of every request.
        body_of: the part of a request that has the text, as arguments of aiohttp.
    """

    def __init__(self, url: str, headers: dict[str, str], body_of: BodyOf) -> None:
        self._url, self._headers, self._body_of = url, headers, body_of

    @classmethod
    def openai(cls, url: str, options: Options) -> "SpeechTarget":
        """A server with OpenAI's API.

        Args:
            url: address of the server, with or without `/v1` or `/v1/audio/speech`.
            options: model, voice and further fields of the request's body.
        """
        base = url.rstrip("/").removesuffix(_PATH).removesuffix("/v1")
        fields: dict[str, Any] = {
            "model": options.model or "tts-1",
            "voice": options.voice or "alloy",
            "response_format": "pcm",
            "stream": True,
            **options.arguments,
        }

        def body_of(text: str) -> dict[str, Any]:
            return {"json": {**fields, "input": text}}

        return cls(f"{base}{_PATH}", authorization(options.api_key), body_of)

    @classmethod
    def pocket(cls, url: str, options: Options) -> "SpeechTarget":
        """The server of the package `pocket-tts`: a form, answered with a WAV file.

        Source: `pocket_tts/main.py` of 4.0.

        Args:
            url: address of the server.
            options: voice and further fields of the form.
        """
        voice = {} if options.voice is None else {"voice_url": options.voice}

        def body_of(text: str) -> dict[str, Any]:
            return {"data": {**voice, **options.arguments, "text": text}}

        return cls(f"{url.rstrip('/')}/tts", authorization(options.api_key), body_of)

    async def connect(self, *, is_measured: bool = False) -> Connection:
        """Open a client, whose socket a request for nothing opens.

        Where that would be measured, the first utterance opens it, as it would without this
        program.

        Raises:
            ConnectionLostError: the server cannot be reached.
        """
        client = aiohttp.ClientSession(
            headers={"Accept-Encoding": "identity", **self._headers},
            timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S),
            trace_configs=[_timed_connect()],
        )
        if is_measured:
            return _SpeechConnection(client, self._url, self._body_of)
        try:
            async with client.options(self._url) as answer:  # any will do: the socket stays open
                await answer.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            await client.close()
            raise ConnectionLostError(
                f"expected an HTTP server at the target, got {type(error).__name__}; "
                "check its address"
            ) from error
        return _SpeechConnection(client, self._url, self._body_of)


class _SpeechConnection:
    """A kept-alive connection, for one request at a time."""

    is_usable = True

    def __init__(self, client: aiohttp.ClientSession, url: str, body_of: BodyOf) -> None:
        self._client, self._url, self._body_of = client, url, body_of
        self._text: list[str] = []
        self._recorder: Recorder | None = None
        self._reading: asyncio.Task[None] | None = None

    async def start(self, request: Request, recorder: Recorder) -> None:
        self._text, self._recorder = [], recorder

    async def send(self, text: str) -> None:
        self._text.append(text)

    async def end(self) -> None:
        assert self._recorder is not None
        self._reading = asyncio.create_task(self._request("".join(self._text), self._recorder))

    async def cancel(self) -> None:
        # Closes the response.
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait({self._reading})
        if self._recorder is not None:
            self._recorder.finish()

    async def aclose(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait({self._reading})
        await self._client.close()

    async def _request(self, text: str, recorder: Recorder) -> None:
        try:
            async with self._client.post(
                self._url, **self._body_of(text), trace_request_ctx=recorder
            ) as response:
                if not response.ok:
                    return recorder.fail(f"http_{response.status}", _retry_after_s(response))
                decoder = _Pcm(response.headers.get("content-type", ""))
                async for data in response.content.iter_any():
                    recorder.audio(decoder.feed(data), decoder.rate_hz)
        except (aiohttp.ClientError, TimeoutError):
            return recorder.fail(ErrorCode.CONNECTION_LOST)
        except ValueError:
            return recorder.fail(ErrorCode.INVALID_MESSAGE)
        return recorder.finish()


def _timed_connect() -> aiohttp.TraceConfig:
    """Records the time in which a socket is opened for an utterance."""
    trace = aiohttp.TraceConfig()

    async def begin(_: aiohttp.ClientSession, context: SimpleNamespace, __: object) -> None:
        context.began = Recorder.now()

    async def end(_: aiohttp.ClientSession, context: SimpleNamespace, __: object) -> None:
        if isinstance(recorder := context.trace_request_ctx, Recorder):
            recorder.utterance.connect_s = Recorder.now() - context.began

    trace.on_connection_create_start.append(begin)
    trace.on_connection_create_end.append(end)
    return trace


def _retry_after_s(response: aiohttp.ClientResponse) -> float:
    value = response.headers.get("retry-after", "")
    return float(value) if value.isdigit() else 0.0


class _Pcm:
    """Cuts a body into whole samples of PCM16; reads the header of a WAV file.

    Attributes:
        rate_hz: sample rate of the audio.
    """

    def __init__(self, content_type: str) -> None:
        rate = content_type.partition("rate=")[2].partition(";")[0].strip()
        self.rate_hz = int(rate) if rate.isdigit() else SAMPLE_RATE_HZ
        self._rest = b""
        self._is_in_samples = False

    def feed(self, data: bytes) -> bytes:
        """Return the samples that are complete with `data`.

        Raises:
            ValueError: it is a WAV file, but not PCM16 mono.
        """
        self._rest += data
        if not self._is_in_samples and len(self._rest) >= _RIFF_HEADER_BYTES:
            self._skip_header()
        size = len(self._rest) if self._is_in_samples else 0
        whole = size - size % BYTES_PER_SAMPLE
        pcm, self._rest = self._rest[:whole], self._rest[whole:]
        return pcm

    def _skip_header(self) -> None:
        """Skip the chunks of a WAV file before its samples, once all of these chunks are here."""
        place = _RIFF_HEADER_BYTES
        if not self._rest.startswith(b"RIFF"):
            self._is_in_samples = True
        while not self._is_in_samples and len(self._rest) >= place + 8:
            name, size = struct.unpack_from("<4sI", self._rest, place)
            if name == b"data":
                self._rest, self._is_in_samples = self._rest[place + 8 :], True
            elif name == b"fmt " and len(self._rest) >= place + 24:
                _, channels, self.rate_hz, _, _, bits = struct.unpack_from(
                    "<HHIIHH", self._rest, place + 8
                )
                if (channels, bits) != (1, 16):
                    raise ValueError(f"expected PCM16 mono, got {channels} channels of {bits} bits")
            place += 8 + size + size % 2
