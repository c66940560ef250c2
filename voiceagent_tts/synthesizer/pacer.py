"""Credit for the engine: how far generation may run ahead of playback."""

import time
from collections.abc import Callable

from voiceagent_tts.core import SAMPLE_RATE_HZ, PlayoutClock
from voiceagent_tts.synthesizer.options import Limits
from voiceagent_tts.synthesizer.segment_source import SegmentSource
from voiceagent_tts.synthesizer.timers import MakeTimer, Timer

_MIN_LEAD_S = 0.2
"""Minimum lead: a shorter one is used up by timers and the delay of the resampler."""
_LONGEST_STEP_S = 0.5


class Pacer:
    """Grants credit as playback proceeds, in steps large enough to be worth a message.

    Args:
        engine: receives the credit.
        clock: the context's playback.
        to_engine: converts samples of the listener's audio to samples of the engine's.
        max_lead_s: longest lead of generation over playback; None for the server's limit, 0 for no
            pacing.
        limits: the server's limits; the one of unsent audio also holds without pacing.
        make_timer: makes its timer.

    Attributes:
        first_sent_at: `time.monotonic()` of the first audio sent; None before it.
    """

    def __init__(
        self,
        engine: SegmentSource,
        clock: PlayoutClock,
        to_engine: Callable[[int], int],
        max_lead_s: float | None,
        limits: Limits,
        make_timer: MakeTimer = Timer,
    ) -> None:
        self.first_sent_at: float | None = None
        self._engine = engine
        self._clock = clock
        self._to_engine = to_engine
        self._max_unsent_s = limits.max_unsent_s
        self._is_paced = max_lead_s != 0
        self._lead_s = max(limits.max_lead_s if max_lead_s is None else max_lead_s, _MIN_LEAD_S)
        self._step_s = _LONGEST_STEP_S
        if self._is_paced:
            self._step_s = min(_LONGEST_STEP_S, self._lead_s / 4)
        self._granted_samples = 0
        self._next = make_timer(self.update)

    def record_sent(self, samples: int) -> None:
        """Record that `samples` have just left for the listener."""
        now = time.monotonic()
        if self.first_sent_at is None:
            self.first_sent_at = now
        self._clock.send(samples, now)
        self.update()

    def update(self) -> None:
        """Grant the credit that playback allows now, and check again after a step of playback."""
        if not self._engine.is_speaking:
            return
        now = time.monotonic()
        wanted = self._wanted_samples(now)
        if wanted - self._granted_samples >= self._step_s * SAMPLE_RATE_HZ:
            self._granted_samples = wanted
            playout_end = max(self._clock.playout_end, now)
            self._engine.grant(playout_end, self._to_engine(wanted))
        if self._is_paced and self._clock.lead_s(now) > 0 and not self._next.is_running:
            self._next.start(self._step_s)

    def stop(self) -> None:
        """Stop granting credit."""
        self._next.stop()

    def _wanted_samples(self, now: float) -> int:
        by_memory = self._clock.sent_samples + round(self._max_unsent_s * SAMPLE_RATE_HZ)
        if not self._is_paced:
            return by_memory
        by_playback = self._clock.played_samples(now) + round(self._lead_s * SAMPLE_RATE_HZ)
        return min(by_memory, by_playback)
