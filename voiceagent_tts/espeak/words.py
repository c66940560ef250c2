"""espeak's events to the times of the client's words.

espeak reports where a word begins (WORD) and every phoneme in it. It gives one WORD to pairs that
its dictionary holds together ("of the"), several to a number, and sometimes names the space before
a word. So an event belongs to the first word that ends after its position, the first event of a
word counts, and words without one share the sound of the word before them, divided at the phoneme
where their own pronunciation says that they begin.

A word begins at its first phoneme, not at its WORD event: between the two lies the silence in
which a plosive closes the mouth. This module knows no library, no rows and no context's clock.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from voiceagent_tts.core import Word
from voiceagent_tts.espeak.library import EventType, SpeechEvent

CountPhonemes = Callable[[str], int]
"""How many phonemes a text has when it is spoken on its own."""


@dataclass(frozen=True, slots=True)
class SpokenText:
    """What espeak is given for a client's text.

    Attributes:
        text: the characters that espeak reads.
        offsets: for each of them, the offset in the client's context that it stands for; ascending.
        guessed: the client's offsets whose place among `offsets` is an estimate.
    """

    text: str
    offsets: Sequence[int]
    guessed: frozenset[int] = frozenset()

    def range_of(self, word: Word) -> range:
        """Characters of `text` that speak `word`."""
        start = bisect_left(self.offsets, word.char_start)
        return range(start, bisect_left(self.offsets, word.char_end, start))


@dataclass(frozen=True, slots=True)
class WordSpan:
    """When a word sounds, in samples at espeak's rate from the first sample of its text."""

    word: Word
    start: int
    end: int
    is_exact: bool


@dataclass(slots=True)
class _Sound:
    """What espeak says between two of its WORD events."""

    char_index: int
    phoneme_starts: list[int] = field(default_factory=list[int])
    end: int = 0
    is_open: bool = True
    """Whether neither a pause nor another WORD has ended it."""


def time_words(
    words: Sequence[Word],
    spoken: SpokenText,
    events: Iterable[SpeechEvent],
    count_phonemes: CountPhonemes,
) -> list[WordSpan]:
    """Give every word its time, in order and without overlap.

    Args:
        words: the words of the client's text, in order.
        spoken: what espeak was given for that text.
        events: what espeak reported, in the order of their samples.
        count_phonemes: asked only about words that share a sound.

    Returns:
        One span a word. A word without sound, such as one that hygiene removed, has no length and
        stands where the word before it ends.
    """
    if not words:
        return []
    ranges = [spoken.range_of(word) for word in words]
    sounds = _sounds_by_word(_sounds(events), [characters.stop for characters in ranges])
    if not sounds:
        return [WordSpan(word, 0, 0, is_exact=False) for word in words]
    spans: list[WordSpan] = []
    for group, sound in _groups(sounds, len(words)):
        first = ranges[group.start].start
        texts = [spoken.text[first : ranges[index].stop] for index in group]
        bounds = _bounds(texts, count_phonemes)
        spans += _divide(words[group.start : group.stop], bounds, sound, spoken.guessed)
    return spans


def _sounds(events: Iterable[SpeechEvent]) -> list[_Sound]:
    """Collect the phonemes after each WORD event, and where the pause after them begins."""
    sounds: list[_Sound] = []
    sample = 0
    for event in events:
        sample = event.sample
        if event.kind is EventType.WORD:
            _close(sounds, sample)
            sounds.append(_Sound(event.char_index))
        elif event.kind is EventType.PHONEME and event.is_pause:
            _close(sounds, sample)
        elif event.kind is EventType.PHONEME:
            if not sounds:
                sounds.append(_Sound(event.char_index))
            sounds[-1].phoneme_starts.append(sample)
            sounds[-1].is_open = True
    _close(sounds, sample)
    return [sound for sound in sounds if sound.phoneme_starts]


def _close(sounds: list[_Sound], sample: int) -> None:
    """End the sound under way; one that a pause has ended keeps that end."""
    if sounds and sounds[-1].is_open:
        sounds[-1].end, sounds[-1].is_open = sample, False


def _sounds_by_word(sounds: Iterable[_Sound], word_ends: Sequence[int]) -> dict[int, _Sound]:
    """Join the sounds of each word, under the word's index; ascending."""
    by_word: dict[int, _Sound] = {}
    current = 0
    for sound in sounds:
        found = bisect_right(word_ends, sound.char_index)
        current = max(current, min(found, len(word_ends) - 1))
        if current in by_word:
            by_word[current].phoneme_starts += sound.phoneme_starts
            by_word[current].end = sound.end
        else:
            by_word[current] = sound
    return by_word


def _groups(sounds: dict[int, _Sound], word_count: int) -> Iterator[tuple[range, _Sound]]:
    """Pair each sound with its words; words before the first sound share it."""
    firsts = [0, *list(sounds)[1:], word_count]
    for first, end, sound in zip(firsts, firsts[1:], sounds.values(), strict=False):
        yield range(first, end), sound


def _bounds(texts: Sequence[str], count_phonemes: CountPhonemes) -> list[int]:
    """Phonemes of a sound up to the end of each of its words, after a leading 0.

    Args:
        texts: the sound's text up to the end of each word.
        count_phonemes: counts them together, as words of one sound change each other.
    """
    counts = [1] if len(texts) == 1 else [count_phonemes(text) for text in texts]
    return [0, *accumulate(counts if counts[-1] > 0 else map(len, texts), max)]


def _divide(
    words: Sequence[Word], bounds: Sequence[int], sound: _Sound, guessed: frozenset[int]
) -> Iterator[WordSpan]:
    """Cut a sound at the phonemes where its words begin.

    The cut is exact where the words have as many phonemes as were heard.
    """
    marks = [*sound.phoneme_starts, sound.end]
    heard, total = len(sound.phoneme_starts), max(1, bounds[-1])
    for word, first, last in zip(words, bounds, bounds[1:], strict=False):
        start, end = marks[first * heard // total], marks[last * heard // total]
        is_exact = first < last and (first == 0 or total == heard)
        yield WordSpan(word, start, end, is_exact and word.char_start not in guessed)
