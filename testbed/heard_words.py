"""One context's words as its listener gets them, wired as in `Context`, without any process."""

import sys
from collections.abc import Iterable

from voiceagent_tts.audio.changed_clock import ChangedClock
from voiceagent_tts.audio.listener_clock import ListenerClock
from voiceagent_tts.core import AudioChunk, PlayoutClock, Segment, WordTimestamp
from voiceagent_tts.synthesizer.events import Source
from voiceagent_tts.synthesizer.words import WORDS_AT_ONCE, Words
from voiceagent_tts.word_times.aligned_words import AlignedWords, WordPolicy
from voiceagent_tts.word_times.aligners import ContextAligners, VoiceLevels


class _Answered(ContextAligners):
    """The aligners of a context for which a caller answers, whenever it likes."""

    def __init__(self, sources: Iterable[Source], voice_level: float) -> None:
        super().__init__([], "", VoiceLevels())
        self._sources = [*sources]
        self._voice_level = voice_level

    @property
    def sources(self) -> list[Source]:
        return self._sources

    @property
    def voice_level(self) -> float:
        return self._voice_level

    @property
    def due_at(self) -> None:
        """No wait ends by itself."""

    def finish(self, now: float) -> bool:
        return True


def words_timed_by_caller(
    playout: PlayoutClock,
    listener: ListenerClock,
    sources: Iterable[Source],
    voice_level: float = 0.0,
) -> AlignedWords:
    """The words of a context whose times a caller gives to the policy."""
    aligners = _Answered(sources, voice_level)
    return AlignedWords(lambda *_: aligners, playout, listener, "", lambda *_: None)


class HeardWords:
    """Words of a text whose audio and times a caller has."""

    def __init__(self, sources: Iterable[Source] = (), speed: float = 1.0) -> None:
        self.playout = PlayoutClock()
        self.listener = ChangedClock(speed)
        sources = {*sources}
        clocks = self.playout, self.listener
        self.words: Words = Words(*clocks)
        if sources != {Source.NATIVE}:
            self.words = words_timed_by_caller(*clocks, sources)
        self._chars = 0

    @property
    def policy(self) -> WordPolicy:
        """What chooses the times of words that the engine does not report."""
        assert isinstance(self.words, AlignedWords)
        return self.words.policy

    def expect(self, text: str, *, is_whole: bool = True) -> None:
        """Expect text that continues the text before."""
        self.words.expect(Segment(text, self._chars), is_whole=is_whole)
        self._chars += len(text)

    def push_audio(self, chunk: AudioChunk) -> AudioChunk | None:
        """Receive the engine's next audio; return what the listener gets."""
        self.words.push_audio(chunk, lambda: "en")
        return self.listener.push_audio(chunk)

    def end_audio(self, now: float = 0.0) -> AudioChunk | None:
        """Receive the end of the audio; return what the listener gets."""
        (rest,) = self.listener.drain(sys.maxsize) or (None,)
        self.words.end_audio(now)
        return rest

    def add_times(self, source: Source, *times: WordTimestamp) -> None:
        if source in (Source.NATIVE, Source.CACHE):
            self.words.add_exact(times, is_cached=source is Source.CACHE)
        else:
            self.policy.add_times(source, times)

    def pop_due(self, now: float) -> tuple[WordTimestamp, ...]:
        """Return the words to publish, of which there may be several calls full."""
        words = part = self.words.pop_due(now)
        while len(part) == WORDS_AT_ONCE:
            words += (part := self.words.pop_due(now))
        return words
