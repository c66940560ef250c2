"""`Playout`: which part of the audio that has left the service the transport has played.

Pipecat times the words of a context from the moment its first audio left, as if the audio played
without gaps and started where the previous word did. In fact audio starts late after a stall,
behind the audio of another context, or when the transport starts late. A transport also plays whole
chunks: audio that does not fill one waits for more, or for silence at the end of its context, and
an interruption leaves the one that plays. This module computes the correction. It knows no socket
and no clock; times are passed in.
"""

import math
from collections import deque
from collections.abc import Iterable

from pipecat.frames.frames import TTSAudioRawFrame

from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ, PlayoutClock, samples_to_ms

DEFAULT_CHUNK_S = 0.04
"""Length of the chunks that Pipecat's transports play by default."""
_RESTART_S = 0.02
"""Time from audio arriving at a transport that ran dry in mid-turn until the audio plays."""
_MAX_START_ERROR_S = 0.5
"""A transport that starts further than this from the expected time plays other audio."""
_IN_CHUNK_S = 0.005
"""A word enters the history this long after the chunk begins that makes it audible, not before."""
_PAUSE_S = 0.2
"""Pause between two utterances that are queued one behind the other."""
_ROUNDING_S = 1e-4


class Playout:
    """Maps Pipecat's times of a context's words to the times at which their audio plays.

    Args:
        latency_s: length of a word that must have been played before the word counts as heard.

    Attributes:
        baseline_s: the time from which Pipecat counts the current context's words.
        chunk_s: length of the chunks that the transport plays.
    """

    def __init__(self, latency_s: float) -> None:
        self.baseline_s = 0.0
        self.chunk_s = DEFAULT_CHUNK_S
        self.latency_s = latency_s
        self._context_id: str | None = None
        self._clock = PlayoutClock()  # of the context's chunks; an earlier one may share the first
        self._frame_samples = 0  # of the context, at the sample rate of its frames
        self._left_samples = 0  # of the context, at 24 kHz
        self._first_sample = 0  # of the context, in its chunks
        self._unfilled_samples = 0  # have left, but fill no chunk
        self._zeros_s: list[tuple[float, float]] = []  # chunks from here on: when 0 would play
        self._last_ns = 0
        self._is_new_run = True  # whether the transport has filled up a chunk, and starts anew
        self._expected_starts_s: deque[float] = deque()  # of the runs that have not started
        self._is_interruptible = True
        self._started_at_s: float | None = None  # the transport's latest start
        self._chunks = 0  # played since then
        self._late_s = 0.0  # how much later it really was, by the chunk that ended most in time

    def pause_s(self, now_s: float) -> float:
        """Silence that is missing between the last utterance and one that begins now."""
        if not self._clock.playout_end:
            return 0.0  # nothing was played, or it was interrupted
        return max(0.0, min(_PAUSE_S, self._clock.playout_end + _PAUSE_S - now_s))

    def lead_s(self, now_s: float) -> float:
        """Audio that has left and is not played yet."""
        return self._clock.lead_s(now_s)

    @property
    def _chunk_samples(self) -> int:
        return round(self.chunk_s * SAMPLE_RATE_HZ)

    def start_context(self, context_id: str | None) -> None:
        """The audio of `context_id` follows that of the previous context."""
        if context_id == self._context_id:
            return  # Pipecat has reopened it after a long silence
        playout_end = self._clock.playout_end
        self._context_id, self._clock = context_id, PlayoutClock()
        self._clock.playout_end = playout_end
        self._frame_samples = self._left_samples = 0
        self._first_sample, self._zeros_s = self._unfilled_samples, []

    def play(self, frame: TTSAudioRawFrame, now_s: float) -> None:
        """`frame` leaves at `now_s` and plays after the audio that left before it."""
        self._frame_samples += len(frame.audio) // BYTES_PER_SAMPLE
        end_sample = self._frame_samples * SAMPLE_RATE_HZ // frame.sample_rate
        self._unfilled_samples += end_sample - self._left_samples
        self._left_samples = end_sample
        self._is_interruptible = frame.interruptible
        unfilled_samples = self._unfilled_samples % self._chunk_samples
        self._play_chunks(self._unfilled_samples - unfilled_samples, now_s)
        self._unfilled_samples = unfilled_samples

    def end_context(self, now_s: float) -> None:
        """The transport fills up its last chunk, and reports that the utterance has ended."""
        if self._unfilled_samples:
            self._play_chunks(self._chunk_samples, now_s)
        self._unfilled_samples, self._is_new_run = 0, True

    def _play_chunks(self, samples: int, now_s: float) -> None:
        """The transport has whole chunks of this length more."""
        if not samples:
            return
        position_s = self._clock.sent_samples / SAMPLE_RATE_HZ
        is_dry = now_s > self._clock.playout_end
        if position_s and is_dry:
            now_s += _RESTART_S
        self._clock.send(samples, now_s)
        start_s = self._clock.playout_end - samples / SAMPLE_RATE_HZ
        if is_dry or not position_s:
            self._zeros_s.append((position_s, start_s - position_s))
        if self._is_new_run:
            self._expected_starts_s.append(start_s)
            self._is_new_run = False

    def transport_started(self, now_s: float) -> None:
        """The transport has started the first utterance that had not started, perhaps late."""
        if not self._expected_starts_s:
            return
        self._move(now_s - self._expected_starts_s.popleft())
        self._started_at_s, self._late_s, self._chunks = now_s, 0.0, 0

    def chunk_ended(self, now_s: float) -> None:
        """The transport has played one more chunk of the utterance that it started last.

        A busy program starts later than it reports, and notices the ends of chunks late.
        """
        if self._started_at_s is None:
            return
        self._chunks += 1
        late_s = max(0.0, now_s - self._started_at_s - self._chunks * self.chunk_s)
        if self._chunks == 1 or late_s < self._late_s:
            self._move(late_s - self._late_s)
            self._late_s = late_s

    def _move(self, late_s: float) -> None:
        if abs(late_s) < _MAX_START_ERROR_S:
            self._clock.playout_end += late_s
            self._zeros_s = [(start_s, zero_s + late_s) for start_s, zero_s in self._zeros_s]
            self._expected_starts_s = deque(each + late_s for each in self._expected_starts_s)

    def awaits_start(self, now_s: float) -> bool:
        """Whether the transport has a chunk that it should have started to play."""
        return bool(self._expected_starts_s) and self._expected_starts_s[0] <= now_s

    def _chunk_of(self, position_s: float) -> int:
        """The chunk that completes the audible length of a word at this position."""
        audible_s = self._first_sample / SAMPLE_RATE_HZ + position_s + self.latency_s
        return max(0, math.ceil((audible_s - _ROUNDING_S) / self.chunk_s) - 1)

    def makes_audible(self, context_id: str | None, position_s: float) -> bool:
        """Whether the transport has the chunk that makes a word at this position audible."""
        end_sample = (self._chunk_of(position_s) + 1) * self._chunk_samples
        return self.plays(context_id) and end_sample <= self._clock.sent_samples

    def heard_ns(self, pts: int) -> int:
        """When the word at `pts` is heard: with the chunk that completes its audible length."""
        position_s = pts / 1e9 - self.baseline_s
        chunk_s = self._chunk_of(position_s) * self.chunk_s
        in_chunks_s = max(
            self._first_sample / SAMPLE_RATE_HZ + self.latency_s, chunk_s + _IN_CHUNK_S
        )
        return self.in_order_ns(round((_zero_of(chunk_s, self._zeros_s) + in_chunks_s) * 1e9))

    def in_order_ns(self, pts: int) -> int:
        """`pts`, or the time of the frame before it if that is later, so that frames keep order."""
        self._last_ns = max(self._last_ns, pts)
        return self._last_ns

    @property
    def end_ns(self) -> int:
        """When all audio that has left is played."""
        return round(self._clock.playout_end * 1e9)

    def plays(self, context_id: str | None) -> bool:
        """Whether `context_id` is the context whose audio is leaving."""
        return context_id is not None and context_id == self._context_id

    def has_audio(self, context_id: str) -> bool:
        """Whether any audio of `context_id` has left."""
        return self.plays(context_id) and self._left_samples > 0

    def interrupt(self) -> None:
        """The transport drops the audio that it has not played, unless that is uninterruptible."""
        self._expected_starts_s.clear()
        self._started_at_s = None
        if self._is_interruptible:
            self._clock.playout_end = 0.0
            self._last_ns = 0
            self._unfilled_samples, self._is_new_run = 0, True

    def played_ms(self, context_id: str, now_s: float) -> int:
        """Played audio of `context_id`, without the silence of underruns."""
        if context_id != self._context_id:
            return 0
        played_samples = self._clock.played_samples(now_s) - self._first_sample
        return samples_to_ms(max(0, min(played_samples, self._left_samples)))


def _zero_of(chunk_s: float, zeros_s: Iterable[tuple[float, float]]) -> float:
    """When the first chunk would have played for that at `chunk_s` to play when it does."""
    begun = [each for each in zeros_s if each[0] <= chunk_s + _ROUNDING_S]
    _, zero_s = max(begun, default=(0.0, 0.0))
    return zero_s
