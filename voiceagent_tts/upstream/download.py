"""Requests to the upstream, on a thread of their own: PCM arrives while the engine steps.

A request is repeated only before its first byte of audio. To cancel it closes its connection. Audio
that nobody takes is not read: the connection's own buffers then stop the upstream.
"""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np

from voiceagent_tts.audio.resample import Resampler
from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ
from voiceagent_tts.errors import EngineError, VoiceAgentError
from voiceagent_tts.upstream.speech_api import SpeechAPI, SpeechRequest, retry_wait_s, voices_in

_RETRY_WAITS_S = (0.1, 0.4)
_CONNECT_S = 5.0
_MOST_BUFFERED_BYTES = 10 * SAMPLE_RATE_HZ * BYTES_PER_SAMPLE
_READ_BYTES = 4096
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


class Upstream:
    """The connections to one upstream, on a thread with an event loop.

    Args:
        api: its address and its dialect.
        key: API key; None without one.
        sample_rate_hz: rate of its PCM.
        timeout_s: longest wait for its next byte.
        max_requests: requests at the same time.
    """

    def __init__(
        self,
        api: SpeechAPI,
        key: str | None,
        *,
        sample_rate_hz: int,
        timeout_s: float,
        max_requests: int,
    ) -> None:
        self.counts = UpstreamCounts()
        self._api = api
        self._key = key
        self._sample_rate_hz = sample_rate_hz
        self._timeout_s = timeout_s
        self._max_requests = max_requests
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._client = self._wait(self._connect())

    def voices(self) -> list[str]:
        """Ask the upstream for its voices; empty if it does not list them.

        Raises:
            EngineError: it cannot be reached, or refuses the key.
        """
        return self._wait(self._voices())

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

    async def _connect(self) -> httpx.AsyncClient:
        headers = {} if self._key is None else {"Authorization": f"Bearer {self._key}"}
        return httpx.AsyncClient(
            headers=headers,
            timeout=httpx.Timeout(self._timeout_s, connect=_CONNECT_S, pool=None),
            limits=httpx.Limits(max_connections=self._max_requests),
        )

    async def _close(self) -> None:
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._client.aclose()

    async def _voices(self) -> list[str]:
        with self._explained():
            answer = await self._client.get(f"{self._api.url}/audio/voices")
            if answer.status_code in (401, 403):
                raise self._api.failure(answer.status_code, None)
        if not answer.is_success:
            return []
        try:
            return voices_in(answer.json())
        except ValueError:
            return []

    async def _download(self, request: SpeechRequest, download: Download) -> None:
        try:
            with self._explained():
                await self._request(request, download)
        except VoiceAgentError as error:
            self.counts.failures += 1
            download.complete(error)
        except Exception as error:  # its context would wait forever
            self.counts.failures += 1
            download.complete(EngineError.of(f"the upstream {self._api.place}", error))
        else:
            download.complete()

    async def _request(self, request: SpeechRequest, download: Download) -> None:
        for usual_s in (*_RETRY_WAITS_S, None):
            wait_s = await self._attempt(request, download, usual_s)
            if wait_s is None:
                return
            self.counts.retries += 1
            await asyncio.sleep(wait_s)

    async def _attempt(
        self, request: SpeechRequest, download: Download, usual_s: float | None
    ) -> float | None:
        """Send a request and receive its audio.

        Returns:
            Seconds after which to try again; None if all audio has arrived.

        Raises:
            VoiceAgentError: the upstream does not speak this text, and will not the next time.
            httpx.HTTPError: as described.
        """
        self.counts.requests += 1
        url, body = f"{self._api.url}/audio/speech", self._api.body(request)
        try:
            async with self._client.stream("POST", url, json=body) as answer:
                if answer.is_success:
                    await self._receive(answer, download)
                    return None
                status, retry_after = answer.status_code, answer.headers.get("retry-after")
        except (httpx.ConnectError, httpx.RemoteProtocolError, httpx.ReadError):
            if usual_s is None or download.has_begun:
                raise
            return usual_s
        wait_s = None if usual_s is None else retry_wait_s(status, retry_after, usual_s)
        if wait_s is None:
            raise self._api.failure(status, retry_after)
        return wait_s

    async def _receive(self, answer: httpx.Response, download: Download) -> None:
        async for data in answer.aiter_bytes(_READ_BYTES):
            if not download.has_begun:
                self._api.check_audio(answer.headers.get("content-type", ""), data)
            download.push(data)
            while download.is_full:
                await asyncio.sleep(_FULL_POLL_S)
        if not download.has_begun:
            raise EngineError(f"the upstream {self._api.place} sent no audio")

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn errors of the connection into sentences."""
        place = self._api.place
        try:
            yield
        except httpx.TimeoutException as error:
            raise EngineError(
                f"the upstream {place} sent nothing for {self._timeout_s:g} s"
            ) from error
        except httpx.ConnectError as error:
            raise EngineError(f"the upstream {place} cannot be reached") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise EngineError(f"the upstream {place} broke off ({type(error).__name__})") from error
