"""One context's connections to aligner processes.

`AlignerHandle` is the connection to one process, and `ContextAligners` has those of the context.
"""

import time
from collections.abc import Callable, Sequence

import structlog

from voiceagent_tts.core import SAMPLE_RATE_HZ, AudioChunk, Word, earliest
from voiceagent_tts.errors import ErrorCode
from voiceagent_tts.lru import LRUCache
from voiceagent_tts.seam.aligner_messages import Aligned, AlignEvent, Expect, Finish, Follow
from voiceagent_tts.seam.events import (
    AudioStep,
    Cancelled,
    ContextAudio,
    Done,
    Event,
    Failed,
    SegmentEnd,
)
from voiceagent_tts.synthesizer.events import Source
from voiceagent_tts.synthesizer.workers import Row, WorkerClient

_MAX_VOICES = 1_000
"""Voices whose loudness is remembered."""

_MIN_LEVEL_SAMPLES = SAMPLE_RATE_HZ
"""Minimum audio before a context updates the loudness of its voice."""

_ALIGNER_WAIT_S = 5.0
"""Longest wait for the aligners' next answer after all audio has arrived."""
_REFINEMENT_WAIT_S = 0.25
"""Longest wait for better times after all words are published."""

OnAlignerEvent = Callable[[Source, AlignEvent], None]
AttachAligners = Callable[[OnAlignerEvent, str], "ContextAligners"]
"""Connects a new context to its aligners; arguments as for `Aligners.attach`."""

_ANSWER_TIMEOUT_S = {Source.ONLINE: 10.0, Source.FORCED: 30.0}
"""A context disconnects from an aligner that has not answered for this long, so that its audio does
not accumulate for a process that hangs."""

_log = structlog.get_logger(__name__)


def ignore_answer(source: Source, event: AlignEvent) -> None:
    """Replaces the handler of a context that has ended, as `workers.ignore` does."""


class VoiceLevels:
    """Remembers the loudness of each voice from one context to the next.

    With it, noise before the first word is not mistaken for that word.
    """

    def __init__(self) -> None:
        self._levels = LRUCache[str, float](_MAX_VOICES)

    def level_of(self, voice: str) -> float:
        """Return the loudness of `voice`, as `SpeechClock.level`; 0.0 if it is unknown."""
        return self._levels.get(voice) or 0.0

    def add(self, voice: str, level: float) -> None:
        """Update the loudness of a voice: the geometric mean of the old value and the context's.

        A silent context changes nothing.
        """
        if level:
            self._levels.put(voice, (level * (self._levels.get(voice) or level)) ** 0.5)


class ContextAligners:
    """Sends one context's words and audio to its aligners, and limits the wait for answers.

    There are none where no process has a free row.
    """

    def __init__(
        self, handles: "Sequence[AlignerHandle]", recording: str, levels: VoiceLevels
    ) -> None:
        self.handles = handles
        self._recording = recording
        self._levels = levels
        self._answer_until: float | None = None
        """When the wait for missing words ends; None before the end of the audio."""
        self._refine_until: float | None = None
        """When the wait for better times ends; None while a word is missing."""
        self._is_stopped = False

    @property
    def sources(self) -> list[Source]:
        """The kinds of aligners."""
        return [handle.source for handle in self.handles]

    @property
    def voice_level(self) -> float:
        """Loudness of the voice in earlier contexts."""
        return self._levels.level_of(self._recording)

    @property
    def lag_s(self) -> dict[Source, float]:
        """Longest time from audio to the aligner's answer, by aligner."""
        return {handle.source: handle.worst_lag_s for handle in self.handles}

    @property
    def due_at(self) -> float | None:
        """When a wait ends; None without one."""
        return earliest(self._answer_until, self._refine_until)

    def expect(self, words: Sequence[Word]) -> None:
        """Add words of the context, in order."""
        for handle in self.handles:
            handle.expect(words)

    def push_audio(self, chunk: AudioChunk, language: Callable[[], str]) -> None:
        """Send the engine's next audio; `language` returns that of the speech so far."""
        for handle in self.handles:
            if chunk.start_sample == 0:
                handle.follow(language(), self._recording)
            handle.push_audio(chunk)

    def end_segment(self, char_end: int, end_sample: int) -> None:
        """Report that the text before `char_end` was generated in the audio so far."""
        for handle in self.handles:
            handle.send(SegmentEnd(handle.number, char_end, end_sample))

    def finish(self, now: float) -> bool:
        """Ask for the missing words after the end of the audio; False if no aligner follows."""
        aligning = [handle for handle in self.handles if handle.is_active]
        for handle in aligning:
            handle.send(Finish(handle.number))
        self._answer_until = now + _ALIGNER_WAIT_S if aligning else None
        return bool(aligning)

    def wait_again(self, now: float) -> None:
        """Extend the wait: an aligner that answers is busy, not hung."""
        if self._answer_until is not None:
            self._answer_until = now + _ALIGNER_WAIT_S

    def wait_for_better(self, now: float) -> None:
        """Wait briefly for better times, now that all words are published; idempotent."""
        if self._refine_until is None:
            self._refine_until = now + _REFINEMENT_WAIT_S

    def is_given_up(self, now: float) -> bool:
        """Whether a wait is over."""
        due_at = self.due_at
        return due_at is not None and due_at <= now

    def close(self) -> None:
        """Disconnect the aligners; idempotent."""
        self._answer_until = self._refine_until = None
        for handle in self.handles:
            handle.release()

    def stop(self, level: float, samples: int) -> None:
        """Disconnect the aligners and remember the loudness of the voice; idempotent.

        That of less than `_MIN_LEVEL_SAMPLES` is not remembered.
        """
        if not self._is_stopped and samples >= _MIN_LEVEL_SAMPLES:
            self._levels.add(self._recording, level)
        self._is_stopped = True
        self.close()


class AlignerHandle(Row):
    """One context's row on an aligner, which gets its words and audio.

    Attributes:
        worst_lag_s: longest time from audio to the answer that took it into account.
    """

    def __init__(self, worker: WorkerClient, source: Source, on_answer: OnAlignerEvent) -> None:
        self.reserve(worker, self._receive)
        self.source = source
        self.worst_lag_s = 0.0
        self._on_answer = on_answer
        self._expected: list[Word] = []  # words from before `follow`
        self._asked: tuple[int, float] | None = None  # end of unanswered audio, and since when

    def follow(self, language: str, voice: str) -> None:
        """Start following, with the words known so far; idempotent."""
        if self.is_reserved:
            self.start(Follow(self.number, language, voice))
            self.expect(self._expected)

    def expect(self, words: Sequence[Word]) -> None:
        """Add words of the context, in order."""
        if self.is_reserved:
            self._expected += words
        elif words:
            self.send(Expect(self.number, tuple(words)))

    def push_audio(self, chunk: AudioChunk) -> None:
        """Send the engine's next audio; disconnect if the aligner has not answered for too long."""
        now = time.monotonic()
        if self._asked is None:
            self._asked = (chunk.end_sample, now)
        elif self.is_active and now - self._asked[1] > _ANSWER_TIMEOUT_S[self.source]:
            self._give_up()
        self.send(AudioStep((ContextAudio(self.number, chunk),)))

    def release(self) -> None:
        """Release the row, and refer to no context any more; idempotent."""
        super().release()
        self._on_answer = ignore_answer

    def _give_up(self) -> None:
        _log.warning("aligner_too_slow", aligner=self.source.name.lower())
        on_answer = self._on_answer
        self.release()
        message = f"the aligner gave no answer for {_ANSWER_TIMEOUT_S[self.source]:g} s"
        on_answer(self.source, Failed(self.number, ErrorCode.ENGINE_ERROR, message))

    def _receive(self, event: Event | AlignEvent) -> None:
        match event:
            case Aligned():
                self._note_lag(event.end_sample)
                self._on_answer(self.source, event)
            case Done() | Failed() | Cancelled():
                self.is_reserved = self.is_active = False
                self._on_answer(self.source, event)
            case _:
                pass

    def _note_lag(self, end_sample: int) -> None:
        if self._asked is not None and end_sample >= self._asked[0]:
            self.worst_lag_s = max(self.worst_lag_s, time.monotonic() - self._asked[1])
            self._asked = None
