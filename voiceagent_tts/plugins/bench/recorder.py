"""Records the events of one utterance as they arrive, with the event loop's time."""

import asyncio

from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.errors import ErrorCode, VoiceAgentError
from voiceagent_tts.plugins.bench.utterance import Utterance

FAILURES = (VoiceAgentError, OSError, ValueError)
"""Errors that end an utterance, and not the run."""


class Recorder:
    """Receives what a connection hears, and stamps it; the first end counts.

    Attributes:
        utterance: the measurements.
        over: set when the server has ended the utterance, or it has failed.
    """

    def __init__(self, utterance: Utterance) -> None:
        self.utterance = utterance
        self.over = asyncio.Event()
        self._heard = asyncio.Event()

    @staticmethod
    def now() -> float:
        """The time of the running event loop."""
        return asyncio.get_running_loop().time()

    def audio(self, pcm: bytes, rate_hz: int = SAMPLE_RATE_HZ) -> None:
        """A piece of PCM16 has arrived."""
        if pcm and not self.over.is_set():
            self.utterance.hear(pcm, self.now(), rate_hz)
            self._heard.set()

    def word(self, start_s: float) -> None:
        """The time of a word has arrived; it starts `start_s` after the first sample."""
        if not self.over.is_set():
            self.utterance.words.append((self.now(), start_s))

    def confirm(self) -> None:
        """The server has confirmed a cancel."""
        if self.utterance.cancelled is not None and self.utterance.confirmed is None:
            self.utterance.confirmed = self.now()

    def finish(self) -> None:
        """The server has ended the utterance; without a sound, it has failed."""
        if self.utterance.cancelled is None and not self.utterance.times:
            self.fail("no_audio")
        elif not self.over.is_set():
            self._end()

    def fail(self, code: str, retry_after_s: float = 0.0) -> None:
        """The utterance has failed; `code` names the reason."""
        if not self.over.is_set():
            self.utterance.failure, self.utterance.retry_after_s = code, retry_after_s
            self._end()

    def fail_with(self, error: Exception) -> None:
        """The utterance has failed with one of `FAILURES`."""
        self.fail(getattr(error, "code", ErrorCode.CONNECTION_LOST))

    def _end(self) -> None:
        self.utterance.ended = self.now()
        self.over.set()

    async def until_played(self, seconds: float) -> None:
        """Wait until a player that starts at once has played `seconds`."""
        while (played_s := self.utterance.played_s(self.now())) < seconds - 1e-9:
            received_s = self.utterance.audio_s
            if received_s > played_s:
                await asyncio.sleep(max(0.0005, min(seconds, received_s) - played_s))
            else:
                self._heard.clear()
                await self._heard.wait()
