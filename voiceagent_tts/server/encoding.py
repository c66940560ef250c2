"""Encodes the audio of responses in threads.

Some codecs take 50 ms for a second of audio. They release the GIL while they compute.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import Generic, Protocol, TypeVar
from weakref import WeakValueDictionary

from voiceagent_tts.audio.containers import ContainerEncoder, ContainerFormat
from voiceagent_tts.audio.output import OutputStream
from voiceagent_tts.core import Encoding

_PLAIN: tuple[ContainerFormat, ...] = ("pcm", "wav")
"""Formats that need no encoder: samples are copied on the event loop."""
_THREADS = min(2, max(1, (os.cpu_count() or 1) - 1))  # one processor is for the event loop
_streams = ThreadPoolExecutor(_THREADS, "stream-encoder")
_files = ThreadPoolExecutor(_THREADS, "file-encoder")
"""Threads for files, which have no listeners; streams do not queue behind them."""
_places = WeakValueDictionary[tuple[ThreadPoolExecutor, str], asyncio.Semaphore]()
"""For twice as many pieces of an owner as there are threads: others do not wait for all of them."""


class Encoder(Protocol):
    """Encodes audio into the bytes of a response."""

    def push(self, pcm: bytes) -> bytes:
        """Append whole 24 kHz samples; return the next bytes of the answer, possibly none."""
        ...

    def finish(self) -> bytes:
        """Return the last bytes."""
        ...


_Encoder = TypeVar("_Encoder", bound=Encoder)
_T = TypeVar("_T")


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
        return await _computed(self._threads, self._owner, encode)

    async def encoded(self, pcm: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        """All of `pcm`, encoded."""
        async with aclosing(pcm):
            async for piece in pcm:
                if data := await self.push(piece):
                    yield data
        if data := await self.finish():
            yield data


async def _computed(threads: ThreadPoolExecutor, owner: str, work: Callable[[], _T]) -> _T:
    async with _places.setdefault((threads, owner), asyncio.Semaphore(2 * _THREADS)):
        return await asyncio.get_running_loop().run_in_executor(threads, work)


async def made_late(make: Callable[[], list[str]], owner: str) -> list[str]:
    """The messages of an owner's socket that take long to make, such as compressed audio."""
    return await _computed(_streams, owner, make)


def stream_encoder(
    container_format: ContainerFormat, sample_rate_hz: int, owner: str
) -> AnswerEncoder[ContainerEncoder]:
    """The encoder of an answer that is sent while it is spoken."""
    threads = None if container_format in _PLAIN else _streams
    return AnswerEncoder(lambda: ContainerEncoder(container_format, sample_rate_hz), threads, owner)


def file_encoder(
    container_format: ContainerFormat, sample_rate_hz: int, owner: str
) -> AnswerEncoder[ContainerEncoder]:
    """The encoder of a file that is complete before it is sent."""
    threads = None if container_format in _PLAIN else _files
    return AnswerEncoder(lambda: ContainerEncoder(container_format, sample_rate_hz), threads, owner)


def sample_encoder(encoding: Encoding, sample_rate_hz: int) -> AnswerEncoder[OutputStream]:
    """The encoder of an answer that is samples."""
    return AnswerEncoder(lambda: OutputStream(encoding, sample_rate_hz), None)
