"""Servers with OpenAI's `/v1/audio/speech`: one request for a text, audio as the body arrives.

A text that is still being written is sent when its last piece is known, because a request has no
way to append to it.
"""

import asyncio
import struct
from base64 import b64encode
from typing import Any

import httpx

from voiceagent_tts.bench.recorder import Recorder
from voiceagent_tts.bench.targets.target import Options
from voiceagent_tts.bench.utterance import Request
from voiceagent_tts.client import authorization
from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ
from voiceagent_tts.errors import ConnectionLostError, ErrorCode

_PATH = "/v1/audio/speech"
_TIMEOUT_S = 120.0
_RIFF_HEADER_BYTES = 12


class SpeechTarget:
    """A server behind HTTP.

    Args:
        url: address of the server, with or without `/v1` or `/v1/audio/speech`.
        options: model, voice and further fields of the request's body.
    """

    def __init__(self, url: str, options: Options) -> None:
        base = url.rstrip("/").removesuffix(_PATH).removesuffix("/v1")
        self._url = f"{base}{_PATH}"
        self._headers = authorization(options.api_key)
        self._tls = httpx.create_ssl_context()  # one for all: it takes a tenth of a second
        self._body: dict[str, Any] = {
            "model": options.model or "tts-1",
            "voice": options.voice or "alloy",
            "response_format": "pcm",
            "stream": True,
            **options.arguments,
        }

    async def connect(self) -> "SpeechConnection":
        """Open a client; where that is timed, a request for nothing opens its socket.

        Raises:
            ConnectionLostError: the server cannot be reached.
        """
        client = httpx.AsyncClient(
            headers=self._headers, timeout=_TIMEOUT_S, trust_env=False, verify=self._tls
        )
        try:
            await client.options(self._url)  # any answer will do: the socket stays open
        except httpx.HTTPError as error:
            await client.aclose()
            raise ConnectionLostError(
                f"expected an HTTP server at the target, got {type(error).__name__}; "
                "check its address"
            ) from error
        return SpeechConnection(client, self._url, self._body)

    async def aclose(self) -> None:
        """Nothing is shared."""


class SpeechConnection:
    """A kept-alive connection, for one request at a time."""

    def __init__(self, client: httpx.AsyncClient, url: str, body: dict[str, Any]) -> None:
        self._client, self._url, self._body = client, url, body
        self._text: list[str] = []
        self._own: dict[str, Any] = {}
        self._recorder: Recorder | None = None
        self._reading: asyncio.Task[None] | None = None

    @property
    def is_usable(self) -> bool:
        """See `Connection`."""
        return True

    async def start(self, request: Request, recorder: Recorder) -> None:
        """See `Connection`."""
        self._text, self._recorder = [], recorder
        self._own = _fields_of(request)

    async def send(self, text: str) -> None:
        """See `Connection`."""
        self._text.append(text)

    async def end(self) -> None:
        """See `Connection`."""
        assert self._recorder is not None
        self._reading = asyncio.create_task(self._request("".join(self._text), self._recorder))

    async def cancel(self) -> None:
        """See `Connection`: closes the response."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait({self._reading})
        if self._recorder is not None:
            self._recorder.finish()

    async def aclose(self) -> None:
        """See `Connection`."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait({self._reading})
        await self._client.aclose()

    async def _request(self, text: str, recorder: Recorder) -> None:
        try:
            async with self._client.stream(
                "POST", self._url, json={**self._body, **self._own, "input": text}
            ) as response:
                if response.is_error:
                    return recorder.fail(f"http_{response.status_code}", _retry_after_s(response))
                decoder = _Pcm(response.headers.get("content-type", ""))
                async for data in response.aiter_raw():
                    recorder.audio(decoder.feed(data), decoder.rate_hz)
        except httpx.HTTPError:
            return recorder.fail(ErrorCode.CONNECTION_LOST)
        except ValueError:
            return recorder.fail(ErrorCode.INVALID_MESSAGE)
        return recorder.finish()


def _fields_of(request: Request) -> dict[str, Any]:
    """Fields of one request: OpenAI's for instructions, vLLM-Omni's for a voice to be cloned."""
    fields: dict[str, Any] = {}
    if request.instruction:
        fields["instructions"] = request.instruction
    if request.reference is not None:
        encoded = b64encode(request.reference.read_bytes()).decode()
        fields |= {"ref_audio": f"data:audio/wav;base64,{encoded}", "task_type": "Base"}
        fields["ref_text"] = request.reference_text
    return fields


def _retry_after_s(response: httpx.Response) -> float:
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
        self._is_in_samples: bool | None = None

    def feed(self, data: bytes) -> bytes:
        """Return the samples that are complete with `data`.

        Raises:
            ValueError: it is a WAV file, but not PCM16 mono.
        """
        self._rest += data
        if self._is_in_samples is None and len(self._rest) >= _RIFF_HEADER_BYTES:
            self._is_in_samples = not self._rest.startswith(b"RIFF")
            self._rest = self._rest if self._is_in_samples else self._rest[_RIFF_HEADER_BYTES:]
        if self._is_in_samples is False:
            self._skip_chunks()
        if not self._is_in_samples:
            return b""
        whole = len(self._rest) - len(self._rest) % BYTES_PER_SAMPLE
        pcm, self._rest = self._rest[:whole], self._rest[whole:]
        return pcm

    def _skip_chunks(self) -> None:
        """Read the chunks of a WAV file up to its samples, as far as they have arrived."""
        while len(self._rest) >= 8 and not self._is_in_samples:
            name, size = struct.unpack("<4sI", self._rest[:8])
            if name == b"data":
                self._rest, self._is_in_samples = self._rest[8:], True
            elif len(self._rest) < 8 + size:
                return
            else:
                self._read_chunk(name, self._rest[8 : 8 + size])
                self._rest = self._rest[8 + size + size % 2 :]

    def _read_chunk(self, name: bytes, body: bytes) -> None:
        if name != b"fmt ":
            return
        coding, channels, rate_hz, _, _, bits = struct.unpack("<HHIIHH", body[:16])
        if (channels, bits) != (1, 16):
            raise ValueError(
                f"expected PCM16 mono, got {channels} channels of {bits} bits, coding {coding}"
            )
        self.rate_hz = rate_hz
