"""Requests to the upstream, on a thread of their own: PCM arrives while the engine steps.

A request is repeated only before its first byte of audio. To cancel it closes its connection. Audio
that nobody takes is not read: the connection's own buffers then stop the upstream. What a request
looks like on the wire is the matter of a `SpeechService`.
"""

import asyncio
import threading
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from voiceagent_tts.audio.resample import Resampler
from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ
from voiceagent_tts.errors import EngineError, VoiceAgentError
from voiceagent_tts.upstream.speech_api import SpeechRequest

_RETRY_WAITS_S = (0.1, 0.4)
_MOST_BUFFERED_BYTES = 10 * SAMPLE_RATE_HZ * BYTES_PER_SAMPLE
_FULL_POLL_S = 0.05


@dataclass(slots=True)
class UpstreamCounts:
    """Totals since the start.

    Attributes:
        requests: requests sent, with those that were repeated.
        retries: requests that were repeated.
        failures: texts that were not spoken.
    """

    requests: int = 0
    retries: int = 0
    failures: int = 0


class Download:
    """The audio of one text, on its way. Made by `Upstream.speak`.

    Attributes:
        error: why it ended early; None without an error.
        has_begun: whether any audio has arrived.
    """

    def __init__(self, sample_rate_hz: int) -> None:
        self.error: VoiceAgentError | None = None
        self._lock = threading.Lock()
        self._pcm = bytearray()
        self._odd = b""
        self.has_begun = False
        self._is_complete = False
        self._task: Future[None] | None = None
        self._resampler = (
            None if sample_rate_hz == SAMPLE_RATE_HZ else Resampler(sample_rate_hz, SAMPLE_RATE_HZ)
        )

    # For the engine's thread.

    @property
    def has_arrived(self) -> bool:
        """Whether nothing more will arrive."""
        return self._is_complete

    @property
    def is_spent(self) -> bool:
        """Whether all of it has arrived and was taken."""
        return self._is_complete and not self._pcm

    def take(self, max_samples: int) -> bytes:
        """Remove and return at most `max_samples` of what has arrived."""
        with self._lock:
            size = min(len(self._pcm), max_samples * BYTES_PER_SAMPLE)
            taken = bytes(self._pcm[:size])
            del self._pcm[:size]
        return taken

    def cancel(self) -> None:
        """Close the connection; idempotent."""
        if self._task is not None:
            self._task.cancel()

    # For the thread of the requests.

    @property
    def is_full(self) -> bool:
        """Whether the engine must take audio before more is read."""
        return len(self._pcm) >= _MOST_BUFFERED_BYTES

    async def wait_for_room(self) -> None:
        """Return when the engine has taken enough of what has arrived."""
        while self.is_full:
            await asyncio.sleep(_FULL_POLL_S)

    def follow(self, task: "Future[None]") -> None:
        """Remember the request, so that it can be cancelled."""
        self._task = task

    def push(self, data: bytes) -> None:
        """Append PCM16 at the upstream's rate; a sample may be cut in two."""
        self.has_begun = True
        data = self._odd + data
        even = len(data) - len(data) % BYTES_PER_SAMPLE
        self._odd = data[even:]
        samples = np.frombuffer(data[:even], "<i2")
        self._append(samples if self._resampler is None else self._resampler.push(samples))

    def complete(self, error: VoiceAgentError | None = None) -> None:
        """End the audio, after an error or without one."""
        if self._resampler is not None and error is None:
            self._append(self._resampler.finish())
        self.error = error
        self._is_complete = True

    def _append(self, samples: "np.ndarray[Any, np.dtype[np.int16]]") -> None:
        with self._lock:
            self._pcm += samples.astype("<i2").tobytes()


class SpeechService(Protocol):
    """The connections to one upstream; all methods run in one event loop.

    Attributes:
        engine: name of the engine.
        model: name of the model.
        languages: codes of the languages that it speaks.
        takes_instruct: whether instructions have an effect.
    """

    engine: str
    model: str
    languages: tuple[str, ...]
    takes_instruct: bool

    @property
    def place(self) -> str:
        """The address for messages, without secrets."""
        ...

    async def voices(self) -> list[str]:
        """Ask for the voices; those of its documentation if it does not list them.

        Raises:
            EngineError: the upstream cannot be reached, or refuses the key.
        """
        ...

    async def attempt(
        self, request: SpeechRequest, download: Download, usual_s: float | None
    ) -> float | None:
        """Send a request and receive its audio.

        Args:
            request: the text.
            download: receives the audio.
            usual_s: seconds to wait before the next attempt; None for the last attempt.

        Returns:
            Seconds after which to try again; None if all audio has arrived.

        Raises:
            VoiceAgentError: the upstream does not speak this text, and will not the next time.
        """
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


class Upstream:
    """The requests to one upstream, on a thread with an event loop.

    Args:
        service: the connections.
        sample_rate_hz: rate of its PCM.
    """

    def __init__(self, service: SpeechService, *, sample_rate_hz: int) -> None:
        self.counts = UpstreamCounts()
        self._service = service
        self._sample_rate_hz = sample_rate_hz
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def voices(self) -> list[str]:
        """As `SpeechService.voices`."""
        return self._wait(self._service.voices())

    def speak(self, request: SpeechRequest) -> Download:
        """Start to speak a text."""
        download = Download(self._sample_rate_hz)
        download.follow(
            asyncio.run_coroutine_threadsafe(self._download(request, download), self._loop)
        )
        return download

    def close(self) -> None:
        """Close all connections and end the thread; idempotent."""
        if self._thread.is_alive():
            self._wait(self._close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _wait(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _close(self) -> None:
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._service.close()

    async def _download(self, request: SpeechRequest, download: Download) -> None:
        try:
            await self._request(request, download)
        except VoiceAgentError as error:
            self.counts.failures += 1
            download.complete(error)
        except Exception as error:  # its context would wait forever
            self.counts.failures += 1
            download.complete(EngineError.of(f"the upstream {self._service.place}", error))
        else:
            download.complete()

    async def _request(self, request: SpeechRequest, download: Download) -> None:
        for usual_s in (*_RETRY_WAITS_S, None):
            self.counts.requests += 1
            wait_s = await self._service.attempt(request, download, usual_s)
            if wait_s is None:
                return
            self.counts.retries += 1
            await asyncio.sleep(wait_s)
