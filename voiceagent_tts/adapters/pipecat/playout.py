"""`Playout`: which part of the audio that has left the service the transport has played.

Pipecat times the words of a context from the moment its first audio left, as if the audio played
without gaps and started where the previous word did. In fact audio starts late after a stall,
behind the audio of another context, or when the transport starts late. This module computes the
correction. It knows no socket and no clock; times are passed in.
"""

from pipecat.frames.frames import TTSAudioRawFrame

from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ, PlayoutClock, samples_to_ms

_RESTART_S = 0.02
"""Time from audio arriving at a transport that ran dry in mid-turn until the audio plays."""
_MAX_START_ERROR_S = 0.5
"""A transport that starts further than this from the expected time plays other audio."""


class Playout:
    """Maps Pipecat's times of a context's words to the times at which their audio plays.

    Args:
        latency_s: length of a word that must have been played before the word counts as heard.
    """

    def __init__(self, latency_s: float) -> None:
        self.baseline_s = 0.0
        """The time from which Pipecat counts the current context's words."""
        self.latency_s = latency_s
        self._context_id: str | None = None
        self._clock = PlayoutClock()
        self._frame_samples = 0  # of the context, at the sample rate of its frames
        self._correction_ns = 0
        self._last_ns = 0
        self._expected_start_s: float | None = None
        self._is_interruptible = True

    def start_context(self, context_id: str | None) -> None:
        """The audio of `context_id` follows that of the previous context."""
        if context_id == self._context_id:
            return  # Pipecat has reopened it after a long silence
        playout_end = self._clock.playout_end
        self._context_id, self._clock, self._frame_samples = context_id, PlayoutClock(), 0
        self._clock.playout_end = playout_end

    def play(self, frame: TTSAudioRawFrame, now_s: float) -> None:
        """`frame` leaves at `now_s` and plays after the audio that left before it."""
        position_s = self._clock.sent_samples / SAMPLE_RATE_HZ
        self._frame_samples += len(frame.audio) // BYTES_PER_SAMPLE
        end_sample = self._frame_samples * SAMPLE_RATE_HZ // frame.sample_rate
        samples = end_sample - self._clock.sent_samples
        if position_s and now_s > self._clock.playout_end:
            now_s += _RESTART_S
        self._clock.send(samples, now_s)
        start_s = self._clock.playout_end - samples / SAMPLE_RATE_HZ
        if position_s == 0:
            self._expected_start_s = start_s
        shift_s = start_s - position_s - self.baseline_s + self.latency_s
        self._correction_ns = round(shift_s * 1e9)
        self._is_interruptible = frame.interruptible

    def transport_started(self, now_s: float) -> None:
        """The transport has started to play the context, perhaps later than expected."""
        if self._expected_start_s is None:
            return
        late_s = now_s - self._expected_start_s
        self._expected_start_s = None
        if abs(late_s) < _MAX_START_ERROR_S:
            self._clock.playout_end += late_s
            self._correction_ns += round(late_s * 1e9)

    def corrected_ns(self, pts: int) -> int:
        """When the word at `pts` is heard; never decreases, so that frames keep their order."""
        self._last_ns = max(self._last_ns, pts + self._correction_ns)
        return self._last_ns

    def has_audio(self, context_id: str) -> bool:
        """Whether any audio of `context_id` has left."""
        return context_id == self._context_id and self._clock.sent_samples > 0

    def interrupt(self) -> None:
        """The transport drops the audio that it has not played, unless that is uninterruptible."""
        self._expected_start_s = None
        if self._is_interruptible:
            self._clock.playout_end = 0.0
            self._last_ns = 0

    def played_ms(self, context_id: str, now_s: float) -> int:
        """Played audio of `context_id`, without the silence of underruns."""
        if context_id != self._context_id:
            return 0
        return samples_to_ms(self._clock.played_samples(now_s))
