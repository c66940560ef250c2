"""The cache as one context uses it: which of its segments are there, and which shall be stored."""

from dataclasses import dataclass, replace

from voiceagent_tts.cache.cache import PhraseCache
from voiceagent_tts.cache.key import Manner, PhraseKey, Place, keys_of, said_text
from voiceagent_tts.cache.phrase import Phrase, WordTime, words_of
from voiceagent_tts.core import Segment


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
        manner: how the context is spoken.
        needs_words: whether a phrase without word times is of no use.
        lacks_lead: whether the silence before the context's first sound is left out.
        has_pauses: whether the engine's audio of a segment depends on whether text follows.
        is_filling: whether every phrase is stored, however often it was used.

    Attributes:
        needs_words: as given.
        has_pauses: as given.
        stored: phrases that the context has stored.
    """

    def __init__(
        self,
        cache: PhraseCache,
        manner: Manner,
        *,
        needs_words: bool,
        lacks_lead: bool,
        has_pauses: bool,
        is_filling: bool = False,
    ) -> None:
        self._cache = cache
        self._manner = manner
        self._manners = [manner]
        """How the phrases are spoken that the context may use: its owner's, and everyone's."""
        if manner.spoken.owner:
            everyones = replace(manner.spoken, owner="")
            self._manners.append(replace(manner, spoken=everyones))
        self.needs_words = needs_words
        self._lacks_lead = lacks_lead
        self.has_pauses = has_pauses
        self.stored = 0
        self._is_filling = is_filling

    def find(
        self, segment: Segment, language: str | None, *, is_first: bool, is_last: bool
    ) -> Lookup:
        """Look up a segment.

        Args:
            segment: the segment.
            language: its language code; None if the engine chooses.
            is_first: whether no sound of the context comes before it.
            is_last: whether no text of the context comes after it.
        """
        place = Place(
            language,
            lacks_lead=self._lacks_lead and is_first,
            lacks_pause=self.has_pauses and is_last,
        )
        words = len(words_of(segment))
        keys = list(keys_of(self._manners, place, segment))
        if not keys:
            return Lookup(self._nothing(segment))
        key = next((each for each in keys if self._has(each, words)), keys[0])
        phrase = self._cache.find(key, words, needs_words=self.needs_words)
        return Lookup(phrase, key, self._is_filling or self._cache.admits(key))

    def _has(self, key: PhraseKey, words: int) -> bool:
        return self._cache.has(key, words, needs_words=self.needs_words)

    def has(self, segment: Segment, language: str | None, *, is_first: bool) -> bool:
        """Whether `find` would find a segment, or it has nothing to speak; counts no use."""
        place = Place(language, lacks_lead=self._lacks_lead and is_first)
        words = len(words_of(segment))
        keys = list(keys_of(self._manners, place, segment))
        return any(self._has(key, words) for key in keys) if keys else not words

    def begins(self, segment: Segment) -> bool:
        """Whether a text may become a phrase of this voice."""
        text = said_text(segment)
        return any(self._cache.memory.begins(text, each.spoken) for each in self._manners)

    def count_miss(self) -> None:
        """Count a miss for a sentence that was never passed to `find`."""
        self._cache.counts.misses += 1

    def store(self, key: PhraseKey, pcm: bytes, words: tuple[WordTime, ...] | None) -> None:
        """Store the audio of a segment that `find` has not found."""
        phrase = Phrase(key.text, self._manner.spoken, pcm, words)
        self.stored += self._cache.store(key, phrase)

    def _nothing(self, segment: Segment) -> Phrase | None:
        """The audio of a segment without anything to speak, which no engine need see."""
        return None if words_of(segment) else Phrase("", self._manner.spoken, b"", ())
