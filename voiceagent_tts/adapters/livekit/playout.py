"""`Playout`: a reply's audio and words on their way into LiveKit, each word when it is heard.

LiveKit commits, at a barge-in, the words that its transcript had let go by then. Told the times of
words ahead, it lets them go by an arithmetic of its own that is a word or two off. So a word waits
here until it sounds, and is handed on in a way that makes LiveKit let it go at once. The audio does
not wait for that, except for a few samples that carry the words: LiveKit takes words with audio
only. Where no session listens, words go with their audio.

Knows LiveKit's `AudioEmitter`, the events of its outputs, and how its `TranscriptSynchronizer` of
1.8 reckons. One private name of LiveKit's is touched, in `listening_output`. No wire, no session.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from livekit.agents import tts
from livekit.agents.types import TimedString
from livekit.agents.voice import io

from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ, PlayoutClock, ms_to_samples

_HEARD_SAMPLES = ms_to_samples(12)
"""So much of a word was played when it is handed on; it counts as heard from 20 ms on, and LiveKit
commits it some milliseconds later."""
_MIN_CARRIERS = 16
"""Samples that are kept back for words which are not known yet."""
_LATEST_WORD_SAMPLES = ms_to_samples(50)
"""No word waits for longer than until so long before the end: then playback may be over."""
_NEXT_WORD_S = 0.1
"""A word that the server has not told of yet is due no sooner than this: it tells 0.15 s ahead."""
_EARLY_TIMER_S = 0.005
"""A word may be handed on so long before it is due."""
_FIRST_WORD_SAMPLES = ms_to_samples(150)
"""A first word that begins before this goes with the first audio: a reply of which LiveKit has let
go no word at all is dropped from the history."""
_RESUME_S = 0.02
"""An output that ran dry needs about so long until it plays what it is given."""
_START_PATIENCE_S = 2.0
"""An output that does not say within this that it plays never does."""


def listening_output() -> io.AudioOutput | None:
    """The output of the session whose reply this task makes; None outside of a session.

    LiveKit lets no plugin know of its session. Where this way to it is gone, words go with their
    audio, and a cut is up to two words off.
    """
    try:
        from livekit.agents.voice.agent_activity import _AgentActivityContextVar

        return _AgentActivityContextVar.get().session.output.audio
    except (ImportError, LookupError, AttributeError):
        return None


@dataclass(frozen=True, slots=True)
class Cue:
    """A word that is to be handed on.

    Args:
        char_end: its end in the reply's text.
        start_sample: where it begins in the reply's audio.
        end_sample: where it ends, as far as that is known.
    """

    char_end: int
    start_sample: int
    end_sample: int | None


class _Mark(TimedString):
    """No text, only a time; true, because LiveKit drops what is false."""

    def __bool__(self) -> bool:
        return True


class Playout:
    """What was handed on of one reply, and what is to follow.

    Positions are samples at 24 kHz and characters of the reply's text.

    Args:
        emitter: takes the audio and the words.
        output: says when it begins to play; None where nobody listens.
        sample_rate_hz: of the audio.
        latency_s: how much later than LiveKit plays it a sound is heard.
        on_start: called when playback has begun.
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
        self._first_at = 0.0  # audio was handed on
        self._started_at: float | None = None  # it began to be played
        self._carriers = b""
        self._cues: deque[Cue] = deque()
        self._char_end = 0  # of the text handed on
        self._cued_char_end = 0
        self._last_s = 0.0

    @property
    def samples(self) -> int:
        """Audio handed on."""
        return self._clock.sent_samples

    @property
    def cued_char_end(self) -> int:
        """End of the text that was handed on, or will be when its words are heard."""
        return self._cued_char_end

    @property
    def has_words(self) -> bool:
        """Whether words wait to be heard."""
        return bool(self._cues)

    def close(self) -> None:
        """Listen to the output no longer; idempotent."""
        if self._output is not None and self._first_at:
            self._output.off("playback_started", self._start)
        self._output = None

    # What comes.

    def play(self, pcm: bytes, samples: int) -> None:
        """Hand on audio, `samples` of it at 24 kHz."""
        now = time.monotonic()
        if not self._first_at:
            self._first_at = now
            if self._output is not None:
                self._output.on("playback_started", self._start)
        elif now > self._clock.playout_end:
            now += _RESUME_S
        self._clock.send(samples, now)
        kept = (len(self._cues) + _MIN_CARRIERS) * BYTES_PER_SAMPLE if self._output else 0
        self._carry(len(self._carriers) + len(pcm) - kept, pcm)

    def play_silence(self, seconds: float) -> None:
        """Hand on silence."""
        pcm = bytes(round(seconds * self._sample_rate_hz) * BYTES_PER_SAMPLE)
        self.play(pcm, round(seconds * SAMPLE_RATE_HZ))

    def expect(self, cue: Cue) -> None:
        """A word will be heard; one that was said before the last failure is not said again."""
        if cue.char_end > self._cued_char_end:
            self._cues.append(cue)
            self._cued_char_end = cue.char_end

    def forget_unheard(self) -> None:
        """No audio comes for the words that have none."""
        while self._cues and self._cues[-1].start_sample + _HEARD_SAMPLES > self.samples:
            self._cues.pop()
        self._cued_char_end = self._cues[-1].char_end if self._cues else self._char_end

    def _start(self, event: io.PlaybackStartedEvent) -> None:
        """Playback has begun, with all audio that was handed on before."""
        if self._started_at is not None:
            return
        self._started_at = time.monotonic() - (time.time() - event.created_at)
        self._clock.playout_end = self._started_at + self.samples / SAMPLE_RATE_HZ
        self._clock.underrun_s = 0.0
        self._on_start()

    # What goes.

    def due_in_s(self, *, is_over: bool) -> float | None:
        """How long until a word is to be handed on; None where that takes more news.

        Args:
            is_over: no more audio will come.
        """
        if not self._cues or self._voiced_at(self._cues[0], is_over) > self.samples:
            return None
        if self._output is None or self._is_first(self._cues[0]):
            return 0.0
        if self._started_at is None:
            patience_s = self._first_at + _START_PATIENCE_S - time.monotonic()
            return max(0.0, patience_s) if is_over else None
        return max(0.0, self._due_s(self._cues[0], is_over) - self._elapsed_s)

    def hand_on(self, text: str, *, is_over: bool) -> None:
        """Hand on the words that are due; `text` is the reply's, as far as it is known."""
        is_any = False
        while (due_in_s := self.due_in_s(is_over=is_over)) is not None:
            if due_in_s > _EARLY_TIMER_S:
                break
            self._hand_on(text, self._cues.popleft(), is_over)
            is_any = True
        if is_any and self._output is not None:
            self._carry(BYTES_PER_SAMPLE)
            self._emitter.flush()

    def finish(self, text: str) -> None:
        """Hand on what is left: of the audio, and of the text behind the last word."""
        end_s = self.samples / SAMPLE_RATE_HZ
        self._push_text(text, len(text), end_s, end_s)
        self._carry(len(self._carriers))

    def _is_first(self, cue: Cue) -> bool:
        return not self._char_end and cue.start_sample < _FIRST_WORD_SAMPLES

    def _voiced_at(self, cue: Cue, is_over: bool) -> int:
        """So much audio has been played when a word counts as heard."""
        heard_at = cue.start_sample + _HEARD_SAMPLES
        return min(heard_at, self.samples - _LATEST_WORD_SAMPLES) if is_over else heard_at

    def _due_s(self, cue: Cue, is_over: bool) -> float:
        """When a word counts as heard, in seconds since playback began, as LiveKit counts."""
        played_s = self._voiced_at(cue, is_over) / SAMPLE_RATE_HZ
        return played_s + self._clock.underrun_s + self._latency_s

    @property
    def _elapsed_s(self) -> float:
        """Seconds since playback began."""
        return 0.0 if self._started_at is None else time.monotonic() - self._started_at

    def _hand_on(self, text: str, cue: Cue, is_over: bool) -> None:
        # White space goes with the word before it, so that a cut never leaves it dangling ahead.
        char_end = len(text) - len(text[cue.char_end :].lstrip())
        if self._output is None or (self._started_at is None and not self._is_first(cue)):
            start_s = cue.start_sample / SAMPLE_RATE_HZ
            end_sample = cue.start_sample if cue.end_sample is None else cue.end_sample
            self._push_text(text, char_end, start_s, end_sample / SAMPLE_RATE_HZ)
            return
        now_s = max(0.0, self._elapsed_s - _EARLY_TIMER_S)
        self._push_text(text, char_end, now_s, now_s)
        self._mark(is_over)

    def _mark(self, is_over: bool) -> None:
        """Tell LiveKit for how long it may look at the words handed on.

        It goes by their times only while the last of them is to come, so there must be a time
        behind the last word. It must be past when the next word comes, which counts from there.
        """
        until_s = self._elapsed_s + _NEXT_WORD_S
        if self._cues:
            until_s = self._due_s(self._cues[0], is_over) - _EARLY_TIMER_S
        self._last_s = max(self._last_s, until_s)
        self._emitter.push_timed_transcript(_Mark("", start_time=self._last_s))

    def _push_text(self, text: str, char_end: int, start_s: float, end_s: float) -> None:
        """Hand on the text up to `char_end`; times never decrease: LiveKit bisects them."""
        piece = text[self._char_end : char_end]
        if not piece:
            return
        self._char_end = char_end
        self._cued_char_end = max(self._cued_char_end, char_end)
        start_s = max(self._last_s, start_s)
        self._last_s = max(start_s, end_s)
        timed = TimedString(piece, start_time=start_s, end_time=self._last_s)
        self._emitter.push_timed_transcript(timed)

    def _carry(self, count: int, pcm: bytes = b"") -> None:
        """Hand on `count` bytes of the audio that is kept back, `pcm` added to its end."""
        audio, count = self._carriers + pcm, max(0, count)
        self._carriers = audio[count:]
        if count:
            self._emitter.push(audio[:count])
