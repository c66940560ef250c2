"""espeak's events to the times of the client's words.

espeak reports where each word begins (a WORD event) and every phoneme in it. It reports one WORD
for pairs that its dictionary combines ("of the"), several for a number, and sometimes the position
of the space before a word. So an event belongs to the first word that ends after its position, and
the first event of a word counts. Words without an event share the sound of the word before them,
divided at the phoneme at which they begin when pronounced on their own.

A word begins at its first phoneme, not at its WORD event: between the two lies the silence of a
plosive's closure.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from voiceagent_tts.core import Word
from voiceagent_tts.espeak.library import EventType, SpeechEvent
from voiceagent_tts.text.readings import Said

CountPhonemes = Callable[[str], int]
"""Returns the number of phonemes of a text that is spoken on its own."""


@dataclass(frozen=True, slots=True)
class WordSpan:
    """Start and end of a word, in samples at espeak's rate from the first sample of its text."""

    word: Word
    start: int
    end: int
    is_exact: bool


@dataclass(slots=True)
class _Sound:
    """The phonemes between two WORD events."""

    char_index: int
    phoneme_starts: list[int] = field(default_factory=list[int])
    end: int = 0
    is_open: bool = True
    """Whether neither a pause nor another WORD event has ended it."""


def time_words(
    words: Sequence[Word],
    spoken: Said,
    events: Iterable[SpeechEvent],
    count_phonemes: CountPhonemes,
    guessed: Collection[int] = (),
) -> list[WordSpan]:
    """Find the times of every word, in order and without overlap.

    Phonemes are counted only for words that share a sound. The place of the `guessed` offsets of
    `spoken` is an estimate.

    Returns:
        One span per word. A word without sound, such as one that cleaner removed, has no length and
        is placed at the end of the word before it.
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
        spans += _divide(words[group.start : group.stop], bounds, sound, guessed)
    return spans


def _sounds(events: Iterable[SpeechEvent]) -> list[_Sound]:
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
    """End the last sound; if a pause has ended it, it keeps that end."""
    if sounds and sounds[-1].is_open:
        sounds[-1].end, sounds[-1].is_open = sample, False


def _sounds_by_word(sounds: Iterable[_Sound], word_ends: Sequence[int]) -> dict[int, _Sound]:
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
    """Pair each sound with its words; words before the first sound share that sound."""
    firsts = [0, *list(sounds)[1:], word_count]
    for first, end, sound in zip(firsts, firsts[1:], sounds.values(), strict=False):
        yield range(first, end), sound


def _bounds(texts: Sequence[str], count_phonemes: CountPhonemes) -> list[int]:
    """Number of phonemes of a sound up to the end of each of its words, after a leading 0.

    `texts` are the sound's text up to the end of each word: they are counted together, as
    neighbours change each other's phonemes.
    """
    counts = [1] if len(texts) == 1 else [count_phonemes(text) for text in texts]
    return [0, *accumulate(counts if counts[-1] > 0 else map(len, texts), max)]


def _divide(
    words: Sequence[Word], bounds: Sequence[int], sound: _Sound, guessed: Collection[int]
) -> Iterator[WordSpan]:
    """Divide a sound at the phonemes at which its words begin.

    The division is exact if the words have as many phonemes as the sound.
    """
    marks = [*sound.phoneme_starts, sound.end]
    phonemes, total = len(sound.phoneme_starts), max(1, bounds[-1])
    for word, first, last in zip(words, bounds, bounds[1:], strict=False):
        start, end = marks[first * phonemes // total], marks[last * phonemes // total]
        is_exact = first < last and (first == 0 or total == phonemes)
        yield WordSpan(word, start, end, is_exact and word.char_start not in guessed)
