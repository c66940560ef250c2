"""`Playout`: emits a reply's audio to LiveKit at once, and each word when it is heard.

At a barge-in, LiveKit commits the words that its transcript had released by then. If LiveKit knows
the words' times ahead, it releases them by its own arithmetic, which is a word or two off. So a
word waits here until it is heard, and is emitted in a way that makes LiveKit release it at once.
The audio does not wait, except for a few samples that carry the words: LiveKit accepts words only
with audio. Without a session that plays, words go with their audio.

This module knows LiveKit's `AudioEmitter`, the events of its outputs, and the arithmetic of its
`TranscriptSynchronizer` 1.8. It uses one private name of LiveKit, in `_activity`. It knows no wire.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from livekit.agents import tts
from livekit.agents.types import NOT_GIVEN, NotGivenOr, TimedString
from livekit.agents.voice import io

from voiceagent_tts.core import (
    BYTES_PER_SAMPLE,
    SAMPLE_RATE_HZ,
    PlayoutClock,
    WordTimestamp,
    ms_to_samples,
)

if TYPE_CHECKING:
    from livekit.agents import AgentSession

_HEARD_SAMPLES = ms_to_samples(12)
"""Played length of a word when it is emitted. A word counts as heard from 20 ms on, and LiveKit
commits it some milliseconds after it is emitted."""
_MIN_CARRIER_SAMPLES = 16
"""Samples that are held back to carry words that are not known yet."""
_LATEST_WORD_SAMPLES = ms_to_samples(50)
"""Every word is emitted at least this long before the audio ends: playback may end early."""
_NEXT_WORD_S = 0.1
"""Earliest start of a word that the server has not sent yet: words arrive 0.15 s ahead."""
_EARLY_TIMER_S = 0.005
"""How much before its time a word may be emitted."""
_FIRST_WORD_SAMPLES = ms_to_samples(150)
"""A first word that starts before this is emitted with the first audio: LiveKit drops a reply
from the history if it has released none of its words."""
_RESTART_S = 0.02
"""Time from audio arriving at an output that ran dry until the audio plays."""
_START_TIMEOUT_S = 2.0
"""An output that has not reported its start within this never does."""


def session_output() -> io.AudioOutput | None:
    """The audio output of the session whose reply this task makes; None outside of a session."""
    try:
        return _activity().session.output.audio
    except (ImportError, LookupError, AttributeError):
        return None


def session_without_words() -> "AgentSession[Any] | None":
    """The session whose reply this task makes if that session ignores our words; otherwise None."""
    try:
        activity = _activity()
        return None if activity.use_tts_aligned_transcript else activity.session
    except (ImportError, LookupError, AttributeError):
        return None


def _activity() -> Any:
    """LiveKit's object for the agent whose reply this task makes.

    LiveKit gives plugins no way to their session. If this private one is gone, words go with their
    audio, and a cut is up to two words off.

    Raises:
        LookupError: this task makes no reply of a session.
        ImportError: this version of LiveKit has no such name.
    """
    from livekit.agents.voice.agent_activity import _AgentActivityContextVar

    return _AgentActivityContextVar.get()


class _Mark(TimedString):
    """A time without text; true, because LiveKit drops a false `TimedString`."""

    def __bool__(self) -> bool:
        return True


class Playout:
    """Emits one reply's audio and words to LiveKit.

    Positions are samples at 24 kHz and characters of the reply's text.

    Args:
        emitter: LiveKit's input for audio and words.
        output: reports when it starts to play; None outside of a session.
        sample_rate_hz: sample rate of the audio.
        latency_s: time between LiveKit playing audio and the listener hearing it.
        on_start: called when playback has started.
    """

    def __init__(
        self,
        emitter: tts.AudioEmitter,
        output: io.AudioOutput | None,
        *,
        sample_rate_hz: int,
        latency_s: float,
        on_start: Callable[[], None],
    ) -> None:
        self._emitter = emitter
        self._output = output
        self._sample_rate_hz = sample_rate_hz
        self._latency_s = latency_s
        self._on_start = on_start
        self._clock = PlayoutClock()
        self._first_audio_at = 0.0
        self._started_at: float | None = None  # when playback started
        self._carriers = b""  # audio that is held back to carry words
        self._expected: deque[WordTimestamp] = deque()
        self._char_end = 0  # of the text emitted
        self._expected_char_end = 0
        self._last_s = 0.0  # the latest time emitted

    @property
    def samples(self) -> int:
        """Audio emitted so far."""
        return self._clock.sent_samples

    @property
    def expected_char_end(self) -> int:
        """End of the text that was emitted, or will be when its words are heard."""
        return self._expected_char_end

    @property
    def has_words(self) -> bool:
        """Whether words wait to be heard."""
        return bool(self._expected)

    def close(self) -> None:
        """Stop listening to the output; idempotent."""
        if self._output is not None and self._first_audio_at:
            self._output.off("playback_started", self._start)
        self._output = None

    # Audio and words of the reply.

    def play(self, pcm: bytes, samples: int) -> None:
        """Emit audio whose length is `samples`."""
        now = time.monotonic()
        if not self._first_audio_at:
            self._first_audio_at = now
            if self._output is not None:
                self._output.on("playback_started", self._start)
        elif now > self._clock.playout_end:
            now += _RESTART_S
        self._clock.send(samples, now)
        carriers = len(self._expected) + _MIN_CARRIER_SAMPLES if self._output else 0
        self._push_audio(len(self._carriers) + len(pcm) - carriers * BYTES_PER_SAMPLE, pcm)

    def play_silence(self, seconds: float) -> None:
        """Emit `seconds` of silence."""
        pcm = bytes(round(seconds * self._sample_rate_hz) * BYTES_PER_SAMPLE)
        self.play(pcm, round(seconds * SAMPLE_RATE_HZ))

    def expect(self, words: Iterable[WordTimestamp]) -> None:
        """Emit `words` when they are heard, without those that a failed context spoke before."""
        for word in words:
            if word.word.char_end > self._expected_char_end:
                self._expected.append(word)
                self._expected_char_end = word.word.char_end

    def forget_unheard(self) -> None:
        """Drop the expected words whose audio has not arrived: it never will."""
        while self._expected and self._expected[-1].start_sample + _HEARD_SAMPLES > self.samples:
            self._expected.pop()
        self._expected_char_end = (
            self._expected[-1].word.char_end if self._expected else self._char_end
        )

    def _start(self, event: io.PlaybackStartedEvent) -> None:
        """Playback has started, with all audio that was emitted before."""
        if self._started_at is not None:
            return
        self._started_at = time.monotonic() - (time.time() - event.created_at)
        self._clock.playout_end = self._started_at + self.samples / SAMPLE_RATE_HZ
        self._clock.underrun_s = 0.0
        self._on_start()

    # Words when they are heard.

    def due_in_s(self, *, is_over: bool) -> float | None:
        """Time until the next word is emitted; None if that depends on more audio or events.

        Args:
            is_over: whether no more audio comes.
        """
        if not self._expected or self._heard_sample(self._expected[0], is_over) > self.samples:
            return None
        if self._output is None or self._is_first(self._expected[0]):
            return 0.0
        if self._started_at is None:
            left_s = self._first_audio_at + _START_TIMEOUT_S - time.monotonic()
            return max(0.0, left_s) if is_over else None
        return max(0.0, self._due_s(self._expected[0], is_over) - self._elapsed_s)

    def emit_due_words(self, text: str, *, is_over: bool) -> None:
        """Emit the words that are due; `text` is the reply's text so far."""
        is_any = False
        while (due_in_s := self.due_in_s(is_over=is_over)) is not None:
            if due_in_s > _EARLY_TIMER_S:
                break
            self._emit_word(text, self._expected.popleft(), is_over)
            is_any = True
        if is_any and self._output is not None:
            self._push_audio(BYTES_PER_SAMPLE)
            self._emitter.flush()

    def finish(self, text: str) -> None:
        """Emit the remaining audio, and the text after the last word."""
        end_s = self.samples / SAMPLE_RATE_HZ
        self._push_text(text, len(text), end_s, end_s)
        self._push_audio(len(self._carriers))

    def _is_first(self, word: WordTimestamp) -> bool:
        return not self._char_end and word.start_sample < _FIRST_WORD_SAMPLES

    def _heard_sample(self, word: WordTimestamp, is_over: bool) -> int:
        """Position up to which the audio has been played when `word` counts as heard."""
        heard = word.start_sample + _HEARD_SAMPLES
        return min(heard, self.samples - _LATEST_WORD_SAMPLES) if is_over else heard

    def _due_s(self, word: WordTimestamp, is_over: bool) -> float:
        """When `word` counts as heard, in seconds since playback started, as LiveKit counts."""
        played_s = self._heard_sample(word, is_over) / SAMPLE_RATE_HZ
        return played_s + self._clock.underrun_s + self._latency_s

    @property
    def _elapsed_s(self) -> float:
        """Seconds since playback started."""
        return 0.0 if self._started_at is None else time.monotonic() - self._started_at

    def _emit_word(self, text: str, word: WordTimestamp, is_over: bool) -> None:
        # White space goes with the word before it, so that a resumed transcript has no leading one.
        char_end = len(text) - len(text[word.word.char_end :].lstrip())
        if self._output is None or (self._started_at is None and not self._is_first(word)):
            start_s = word.start_sample / SAMPLE_RATE_HZ
            end_sample = word.start_sample if word.end_sample is None else word.end_sample
            end_s = end_sample / SAMPLE_RATE_HZ
            self._push_text(text, char_end, start_s, end_s, word.confidence)
            return
        now_s = max(0.0, self._elapsed_s - _EARLY_TIMER_S)
        self._push_text(text, char_end, now_s, now_s, word.confidence)
        self._push_mark(is_over)

    def _push_mark(self, is_over: bool) -> None:
        """Push a time after the last word, at which the next word starts at the earliest.

        LiveKit releases words by their times only while the last known time is still to come. That
        time must have passed when the next word is emitted, whose time counts from there.
        """
        until_s = self._elapsed_s + _NEXT_WORD_S
        if self._expected:
            until_s = self._due_s(self._expected[0], is_over) - _EARLY_TIMER_S
        self._last_s = max(self._last_s, until_s)
        self._emitter.push_timed_transcript(_Mark("", start_time=self._last_s))

    def _push_text(
        self,
        text: str,
        char_end: int,
        start_s: float,
        end_s: float,
        confidence: NotGivenOr[float] = NOT_GIVEN,
    ) -> None:
        """Push the text up to `char_end`; times never decrease, because LiveKit bisects them."""
        piece = text[self._char_end : char_end]
        if not piece:
            return
        self._char_end = char_end
        self._expected_char_end = max(self._expected_char_end, char_end)
        start_s = max(self._last_s, start_s)
        self._last_s = max(start_s, end_s)
        timed = TimedString(piece, start_time=start_s, end_time=self._last_s, confidence=confidence)
        self._emitter.push_timed_transcript(timed)

    def _push_audio(self, count: int, pcm: bytes = b"") -> None:
        """Append `pcm` to the audio that is held back, and push the first `count` bytes of it."""
        audio, count = self._carriers + pcm, max(0, count)
        self._carriers = audio[count:]
        if count:
            self._emitter.push(audio[:count])
