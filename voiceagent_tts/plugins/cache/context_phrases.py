"""The cache as one context uses it: finds its segments, and records those that it will store.

An engine's segment is stored when all of its audio has arrived and the times of all of its words
are known. What may sound different the next time is not stored: a segment without a clear end, and
all segments of a context that the engine has warned of.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from voiceagent_tts.core import AudioChunk, Segment, WordTimestamp
from voiceagent_tts.plugins.cache.phrases import (
    Phrase,
    PhraseKey,
    SegmentVariant,
    SynthesisParams,
    WordTime,
    keys_of,
    said_text,
    word_times,
    words_of,
)
from voiceagent_tts.plugins.cache.store import PhraseCache

_MOST_COMPLETE = 16
"""Complete segments that wait for word times; an aligner may be late, or gone."""

KnownTimes = Callable[[int, int, bool], tuple[WordTimestamp, ...] | None]
"""Returns the times of the words between two characters, on the worker's clock; None while one is
missing. The last argument is whether no better times will come."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """The answer of the cache for one segment.

    Attributes:
        phrase: its audio; None if the engine must speak it.
        key: its key; None for a segment without anything to speak.
        is_wanted: whether the audio of the engine shall be stored.
    """

    phrase: Phrase | None
    key: PhraseKey | None = None
    is_wanted: bool = False


class ContextPhrases:
    """Finds and stores the segments of one context.

    Args:
        cache: the cache of the server.
        params: what shapes the sound of the context.
        needs_words: whether a phrase without word times is of no use.
        lacks_lead: whether the silence before the context's first sound is left out.
        has_pauses: whether the engine's audio of a segment depends on whether text follows.
        is_filling: whether every phrase is stored, however often it was used.

    Attributes:
        needs_words: as given.
        has_pauses: as given.
        has_sound: whether a sound of the context comes before what `find` is asked for next: one of
            a segment that it was asked for, or of live text, for which the caller sets this.
        cached: segments that came from the cache.
        stored: phrases that the context has stored.
    """

    def __init__(
        self,
        cache: PhraseCache,
        params: SynthesisParams,
        *,
        needs_words: bool,
        lacks_lead: bool,
        has_pauses: bool,
        is_filling: bool = False,
    ) -> None:
        self._cache = cache
        self._params = params
        self._all_params = [params]
        """Parameters of the phrases that the context may use: its owner's, and the shared ones."""
        if params.voice.owner:
            shared_voice = replace(params.voice, owner="")
            self._all_params.append(replace(params, voice=shared_voice))
        self.needs_words = needs_words
        self._lacks_lead = lacks_lead
        self.has_pauses = has_pauses
        self.has_sound = False
        self.cached = self.stored = 0
        self._is_filling = is_filling

    def find(self, segment: Segment, language: str | None, *, is_last: bool = False) -> Lookup:
        """Look up the next segment of the context.

        Args:
            segment: the segment.
            language: its language code; None if the engine chooses.
            is_last: whether no text of the context comes after it.
        """
        variant = SegmentVariant(
            language,
            lacks_lead=self._lacks_lead and not self.has_sound,
            lacks_pause=self.has_pauses and is_last,
        )
        words = len(words_of(segment))
        keys = list(keys_of(self._all_params, variant, segment))
        if not keys:
            return Lookup(self._nothing(segment))
        self.has_sound = True
        key = next((each for each in keys if self._has(each, words)), keys[0])
        phrase = self._cache.find(key, words, needs_words=self.needs_words)
        self.cached += phrase is not None
        return Lookup(phrase, key, self._is_filling or self._cache.admits(key))

    def _has(self, key: PhraseKey, words: int) -> bool:
        return self._cache.has(key, words, needs_words=self.needs_words)

    def begins(self, segment: Segment) -> bool:
        """Whether a text may become a phrase of this voice."""
        text = said_text(segment)
        return any(self._cache.memory.begins(text, each.voice) for each in self._all_params)

    def store(self, key: PhraseKey, pcm: bytes, words: tuple[WordTime, ...] | None) -> None:
        """Store the audio of a segment that `find` has not found."""
        phrase = Phrase(key.text, self._params.voice, pcm, words)
        self.stored += self._cache.store(key, phrase)

    def _nothing(self, segment: Segment) -> Phrase | None:
        """The empty phrase of a segment without anything to speak, which needs no engine."""
        return None if words_of(segment) else Phrase("", self._params.voice, b"", ())


@dataclass(slots=True)
class _Recording:
    segment: Segment
    lookup: Lookup
    start_sample: int | None = None
    pcm: list[bytes] = field(default_factory=list[bytes])
    words: tuple[WordTimestamp, ...] = ()


class Recorder:
    """Records what the worker of one context speaks, on the worker's clock.

    Args:
        phrases: the cache, as the context uses it.

    Attributes:
        is_recording: whether a segment that shall be stored is being spoken, or will be soon.
        complete: segments with all of their audio, whose word times are not all known.
    """

    def __init__(self, phrases: ContextPhrases) -> None:
        self._phrases = phrases
        self._is_trusted = True
        self.is_recording = False
        self._speaking: deque[_Recording] = deque()
        self.complete: list[_Recording] = []

    def expect(self, segment: Segment, lookup: Lookup) -> None:
        """Add a segment that the engine will speak after those before."""
        self._speaking.append(_Recording(segment, lookup))
        self.is_recording = self._is_trusted and (self.is_recording or lookup.is_wanted)

    def push_words(self, words: tuple[WordTimestamp, ...]) -> None:
        """Record the next words of an engine that reports them."""
        if self._speaking:
            self._speaking[0].words += words

    def push_audio(self, chunk: AudioChunk) -> None:
        """Record the next audio of the engine."""
        if not self._speaking:
            return
        recording = self._speaking[0]
        if recording.start_sample is None:
            recording.start_sample = chunk.start_sample
        if recording.lookup.is_wanted:
            recording.pcm.append(chunk.pcm)

    def end_segment(self, char_end: int) -> None:
        """Record that the text before `char_end` is spoken."""
        while self._speaking and self._speaking[0].segment.char_end <= char_end:
            recording = self._speaking.popleft()
            if recording.pcm and recording.segment.char_end == char_end:
                self.complete.append(recording)
        self.is_recording = self.is_recording and any(
            each.lookup.is_wanted for each in self._speaking
        )

    def distrust(self) -> None:
        """Store no more segments of this context: they may sound different the next time."""
        self._is_trusted = self.is_recording = False
        for recording in self._speaking:
            recording.pcm.clear()

    def store_known(self, known_times: KnownTimes | None = None, *, is_final: bool = False) -> None:
        """Store the segments whose words have all been timed.

        Args:
            known_times: returns the times of words; None where the engine has reported them.
            is_final: whether no better times will come.
        """
        waiting = [each for each in self.complete if not self._store(each, known_times, is_final)]
        self.complete = waiting[-_MOST_COMPLETE:]

    def _store(self, recording: _Recording, known_times: KnownTimes | None, is_final: bool) -> bool:
        segment, start_sample = recording.segment, recording.start_sample
        key = recording.lookup.key
        assert key is not None and start_sample is not None
        words = None
        if self._phrases.needs_words:
            times: tuple[WordTimestamp, ...] | None = recording.words
            if known_times is not None:
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
