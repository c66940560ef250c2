"""Requests to the upstream, on a thread of their own: PCM arrives while the engine steps.

A request is repeated only before its first byte of audio. To cancel it closes its connection. Those
who speak are told that their text was not spoken; the upstream's address, and what its operator has
to set, are for the log.
"""

import asyncio
import logging
import threading
from dataclasses import dataclass
from typing import Any

from voiceagent_tts.errors import EngineError, OverloadedError, VoiceAgentError
from voiceagent_tts.plugins.upstream.download import Download
from voiceagent_tts.plugins.upstream.speech_api import SpeechRequest
from voiceagent_tts.plugins.upstream.speech_http import OpenAISpeech

_RETRY_WAITS_S = (0.1, 0.4)
_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class UpstreamCounts:
    """Totals since the start.

    Attributes:
        requests: requests sent, with those that were repeated.
        retries: requests that were repeated.
    """

    requests: int = 0
    retries: int = 0
    failures: int = 0


class Upstream:
    """The requests to one upstream, on a thread with an event loop."""

    def __init__(self, service: OpenAISpeech) -> None:
        self.counts = UpstreamCounts()
        self._service = service
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def voices(self) -> list[str]:
        """Return the names of its voices.

        Raises:
            EngineError: the upstream cannot be reached, or refuses the key.
        """
        return self._wait(self._service.voices())

    def speak(self, request: SpeechRequest) -> Download:
        """Start to speak a text."""
        download = Download()
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
            self._fail(download, error)
        except Exception as error:  # its context would wait forever
            self._fail(download, EngineError.of(f"the upstream {self._service.address}", error))
        else:
            download.complete()

    def _fail(self, download: Download, error: VoiceAgentError) -> None:
        self.counts.failures += 1
        _logger.warning("a text was not spoken: %s", error.message)
        download.complete(_told(error))

    async def _request(self, request: SpeechRequest, download: Download) -> None:
        for usual_s in (*_RETRY_WAITS_S, None):
            self.counts.requests += 1
            wait_s = await self._service.attempt(request, download, usual_s)
            if wait_s is None:
                return
            self.counts.retries += 1
            await asyncio.sleep(wait_s)


def _told(error: VoiceAgentError) -> VoiceAgentError:
    """What the client learns: whether it may try again, and when."""
    if isinstance(error, OverloadedError):
        return OverloadedError(
            "the server behind this voice has no capacity", retry_after_ms=error.retry_after_ms
        )
    return EngineError("the server behind this voice did not speak the text to its end")
