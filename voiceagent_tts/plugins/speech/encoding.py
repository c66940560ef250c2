"""Encodes the audio of one answer: samples on the event loop, what is compressed in threads."""

from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import Generic, Protocol, TypeVar

from voiceagent_tts.audio.output import OutputStream
from voiceagent_tts.audio.pcm import encode
from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ, Encoding
from voiceagent_tts.plugins.speech.containers import ContainerEncoder, ContainerFormat
from voiceagent_tts.server.encoding import STREAMS, computed, encoder_threads

_PLAIN: tuple[ContainerFormat, ...] = ("pcm", "wav")
"""Formats that need no encoder: samples are copied on the event loop."""
_FILES = encoder_threads("file-encoder")
"""Files have no listeners; streams do not queue behind them."""
_SILENT_REPLY_S = 0.1
"""Less than 60 ms of AAC or FLAC yields no sample: decoders drop the first frame."""


def silent_reply(encoding: Encoding = "pcm_s16le", sample_rate_hz: int = SAMPLE_RATE_HZ) -> bytes:
    """A moment of silence, the answer to a text without speech.

    Clients and agent frameworks treat an answer without audio as a failure.
    """
    samples = round(_SILENT_REPLY_S * sample_rate_hz)
    return encode(bytes(samples * BYTES_PER_SAMPLE), encoding)


class Encoder(Protocol):
    """Encodes audio into the bytes of a response."""

    def push(self, pcm: bytes) -> bytes:
        """Append whole 24 kHz samples; return the next bytes of the answer, possibly none."""
        ...

    def finish(self) -> bytes:
        """Return the last bytes."""
        ...


_Encoder = TypeVar("_Encoder", bound=Encoder)


class AnswerEncoder(Generic[_Encoder]):
    """Creates and runs the encoder of one response.

    Args:
        make: makes the encoder; it may load a library.
        threads: where it computes; None for the event loop.
        owner: whose response it is.
    """

    def __init__(
        self, make: Callable[[], _Encoder], threads: ThreadPoolExecutor | None, owner: str = ""
    ) -> None:
        self._make, self._owner = make, owner
        self._threads = threads
        self._made: _Encoder | None = None

    @property
    def encoder(self) -> _Encoder:
        """The encoder, created on first use."""
        if self._made is None:
            self._made = self._make()
        return self._made

    async def push(self, pcm: bytes) -> bytes:
        """As `Encoder.push`."""
        return await self._run(lambda: self.encoder.push(pcm))

    async def finish(self) -> bytes:
        """As `Encoder.finish`."""
        return await self._run(lambda: self.encoder.finish())

    async def _run(self, encode: Callable[[], bytes]) -> bytes:
        if self._threads is None:
            return encode()
        return await computed(self._threads, self._owner, encode)

    async def encoded(self, pcm: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        """All of `pcm`, encoded."""
        async with aclosing(pcm):
            async for piece in pcm:
                if data := await self.push(piece):
                    yield data
        if data := await self.finish():
            yield data


def stream_encoder(
    container_format: ContainerFormat, sample_rate_hz: int, owner: str
) -> AnswerEncoder[ContainerEncoder]:
    """The encoder of an answer that is sent while it is spoken."""
    threads = None if container_format in _PLAIN else STREAMS
    return AnswerEncoder(lambda: ContainerEncoder(container_format, sample_rate_hz), threads, owner)


def file_encoder(
    container_format: ContainerFormat, sample_rate_hz: int, owner: str
) -> AnswerEncoder[ContainerEncoder]:
    """The encoder of a file that is complete before it is sent."""
    threads = None if container_format in _PLAIN else _FILES
    return AnswerEncoder(lambda: ContainerEncoder(container_format, sample_rate_hz), threads, owner)


def sample_encoder(encoding: Encoding, sample_rate_hz: int) -> AnswerEncoder[OutputStream]:
    """The encoder of an answer that is samples."""
    return AnswerEncoder(lambda: OutputStream(encoding, sample_rate_hz), None)
