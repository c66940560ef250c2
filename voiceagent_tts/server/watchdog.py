"""Checks whether the engine can speak by having it speak.

A listening port proves nothing about an engine that hangs, so readiness requires real audio that is
not older than `watchdog_s`: audio for a client, or the audio of a probe.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable

import structlog

from voiceagent_tts.core import AudioChunk
from voiceagent_tts.errors import VoiceAgentError
from voiceagent_tts.seam.commands import SpeechOptions
from voiceagent_tts.synthesizer.options import ContextOptions
from voiceagent_tts.synthesizer.synthesizer import Synthesizer

_PROBE_TEXT = "good."
_PROBE_INSTRUCT = "a calm voice"
_PROBE_TIMEOUT_S = 5.0
_FIRST_RETRY_S = 0.5

_log = structlog.get_logger(__name__)


class Watchdog:
    """Checks that the engine works: synthesizes a word when no client has received audio lately.

    Args:
        max_age_s: maximum age of the last success, and maximum duration of one check.
    """

    def __init__(
        self,
        synthesizer: Synthesizer,
        max_age_s: float,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._synthesizer = synthesizer
        self._max_age_s = max_age_s
        self._sleep = sleep
        self._timeout_s = min(_PROBE_TIMEOUT_S, max_age_s)
        self._succeeded_at = -math.inf
        self._last_error: str | None = "no synthesis has run yet"

    @property
    def problem(self) -> str | None:
        """Why the engine may be unable to speak; None if it has generated audio recently."""
        age_s = time.monotonic() - max(self._succeeded_at, self._synthesizer.audio_at)
        if self._last_error is None and age_s > self._max_age_s:
            return f"the last synthesis that succeeded was {age_s:.1f} s ago"
        return self._last_error

    @property
    def is_healthy(self) -> bool:
        """Whether a synthesis has succeeded within `max_age_s`, and none has failed since."""
        return self.problem is None

    async def run(self) -> None:
        """Probe at a third of the allowed age; after a failure soon, then less and less often."""
        period_s = self._max_age_s / 3
        retry_s = min(_FIRST_RETRY_S, period_s)
        while True:
            if self.is_healthy:
                retry_s = min(_FIRST_RETRY_S, period_s)
                await self._sleep(period_s)
            else:
                await self._sleep(retry_s)
                retry_s = min(2 * retry_s, period_s)
            if time.monotonic() - self._synthesizer.audio_at < period_s:
                self._last_error = None  # a client receives audio: a probe would only occupy a row
            else:
                await self.probe()

    async def probe(self) -> None:
        """Synthesize one word, and record whether audio was generated."""
        error = await self._try()
        if error is None:
            self._succeeded_at = time.monotonic()
        elif error != self._last_error:
            _log.warning("probe_failed", error=error)
        self._last_error = error

    async def _try(self) -> str | None:
        try:
            async with asyncio.timeout(self._timeout_s):
                return None if await self._speak() else "the engine generated no audio"
        except TimeoutError:
            return f"the engine generated no audio within {self._timeout_s:g} s"
        except Exception as error:  # the next probe may succeed
            return VoiceAgentError.wrapping(error).message

    async def _speak(self) -> bool:
        # A sentence without a language: what detects its end, and languages, is loaded here, and
        # not while a client waits.
        options = ContextOptions(
            speech=SpeechOptions(instruct=self._instruct()),
            max_lead_s=0,
            wants_words=False,
            is_probe=True,
        )
        context = await self._synthesizer.open(options)
        try:
            context.push_text(_PROBE_TEXT)
            context.finish()
            async for event in context:
                if isinstance(event, AudioChunk):
                    return True
            return False
        finally:
            context.abandon()

    def _instruct(self) -> str | None:
        voice = self._synthesizer.voices.resolve(None)
        capabilities = self._synthesizer.supervisors[voice.worker].capabilities
        return _PROBE_INSTRUCT if capabilities.needs_instruct else None
