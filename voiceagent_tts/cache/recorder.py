"""Records the audio of segments that an engine speaks, for the cache.

A segment is stored when all of its audio has arrived and the times of all of its words are known.
What may sound different the next time is not stored: a segment without a clear end, and all
segments of a context that the engine has warned of.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from voiceagent_tts.cache.context_phrases import ContextPhrases, Lookup
from voiceagent_tts.cache.phrase import word_times, words_of
from voiceagent_tts.core import AudioChunk, Segment, WordTimestamp

_MOST_COMPLETE = 16
"""Complete segments that wait for word times; an aligner may be late, or gone."""

KnownTimes = Callable[[int, int, bool], "tuple[WordTimestamp, ...] | None"]
"""Returns the times of the words between two characters, on the clock of the engine's audio; None
while one is missing. The last argument is whether no better times will come."""


@dataclass(slots=True)
class _Recording:
    segment: Segment
    lookup: Lookup
    start_sample: int | None = None
    pcm: list[bytes] = field(default_factory=list[bytes])


class Recorder:
    """Records the live segments of one context.

    Args:
        phrases: the cache, as the context uses it.
    """

    def __init__(self, phrases: ContextPhrases) -> None:
        self._phrases = phrases
        self._is_trusted = True
        self._speaking: deque[_Recording] = deque()
        self._complete: list[_Recording] = []
        """Segments whose word times are not all known."""

    def expect(self, segment: Segment, lookup: Lookup) -> None:
        """Add a segment that the engine will speak after those before."""
        self._speaking.append(_Recording(segment, lookup))

    def push_audio(self, chunk: AudioChunk) -> None:
        """Record the next audio of the engine."""
        if not self._speaking:
            return
        recording = self._speaking[0]
        if recording.start_sample is None:
            recording.start_sample = chunk.start_sample
        if recording.lookup.is_wanted and self._is_trusted:
            recording.pcm.append(chunk.pcm)

    def end_segment(self, char_end: int) -> None:
        """Record that the text before `char_end` is spoken."""
        while self._speaking and self._speaking[0].segment.char_end <= char_end:
            recording = self._speaking.popleft()
            if recording.pcm and recording.segment.char_end == char_end:
                self._complete.append(recording)

    def distrust(self) -> None:
        """Store nothing more of this context: it may sound different the next time."""
        self._is_trusted = False
        for recording in self._speaking:
            recording.pcm.clear()

    def store_known(self, known_times: KnownTimes, *, is_final: bool = False) -> None:
        """Store the segments whose words have all been timed.

        Args:
            known_times: returns the times of words.
            is_final: whether no better times will come.
        """
        waiting = [each for each in self._complete if not self._store(each, known_times, is_final)]
        self._complete = waiting[-_MOST_COMPLETE:]

    def _store(self, recording: _Recording, known_times: KnownTimes, is_final: bool) -> bool:
        segment, start_sample = recording.segment, recording.start_sample
        key = recording.lookup.key
        assert key is not None and start_sample is not None
        words = None
        if self._phrases.needs_words:
            times = known_times(segment.char_start, segment.char_end, is_final)
            if times is None:
                return False
            # An engine may report other words than the text has.
            if [word.char_start for word in words_of(segment)] != [
                each.word.char_start for each in times
            ]:
                return True
            words = word_times(times, start_sample)
        self._phrases.store(key, b"".join(recording.pcm), words)
        return True
