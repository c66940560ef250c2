"""Where a reply goes on when the context that spoke it broke off.

Positions are samples at 24 kHz on the context's clock, and characters of the context's text. Knows
what a client has of a context; no host, no socket, no clock.
"""

from itertools import pairwise

from voiceagent_tts.core import Word, WordTimestamp, ms_to_samples
from voiceagent_tts.text.estimate import usual_samples
from voiceagent_tts.text.words import split_words

_MOST_MISSING_SAMPLES = ms_to_samples(80)
"""A word that lacks more of its end than this, or than half of it, is said again."""
_UNKNOWN_WORD_SAMPLES = ms_to_samples(250)
"""Length of a word whose end is not known."""


def all_words(text: str, told: list[WordTimestamp]) -> list[WordTimestamp]:
    """All words of `text`: as the server told of the first, and guesses at the others.

    A server whose engine does not know its words tells of them just ahead of playback, long after
    their sound; an exact one comes with it.
    """
    if not told or told[-1].is_exact:
        return told
    return told + _foreseen(told, split_words(text)[len(told) :])


def broken_off_at(text: str, told: list[WordTimestamp], received_samples: int) -> int:
    """Where another context goes on: behind the last word of `text` with all its sound.

    Args:
        text: of the context that broke off.
        told: its words so far, from the server.
        received_samples: how much of its sound has come.
    """
    words = all_words(text, told)
    whole = sum(_is_whole(word, end, received_samples) for word, end in _with_ends(words))
    if whole > len(told):
        whole -= 1  # a word twice is better than none
    return words[whole - 1].word.char_end if whole else 0


def _with_ends(words: list[WordTimestamp]) -> list[tuple[WordTimestamp, int]]:
    """Words, and where their sound ends: where the next begins."""
    ends = [word.start_sample for word in words[1:]]
    ends += [word.end_sample or word.start_sample + _UNKNOWN_WORD_SAMPLES for word in words[-1:]]
    return list(zip(words, ends, strict=True))


def _is_whole(word: WordTimestamp, end: int, received_samples: int) -> bool:
    length = end - word.start_sample
    return end - received_samples <= min(_MOST_MISSING_SAMPLES, length // 2)


def _foreseen(told: list[WordTimestamp], words: list[Word]) -> list[WordTimestamp]:
    """Guesses when `words` begin, which follow those told of at the same pace."""
    usual = sum(usual_samples(timestamp.word) for timestamp in told[:-1])
    spoken = told[-1].start_sample - told[0].start_sample
    pace = spoken / usual if usual and spoken else 1.0
    foreseen: list[WordTimestamp] = []
    start = float(told[-1].start_sample)
    for before, word in pairwise([told[-1].word, *words]):
        start += usual_samples(before) * pace
        foreseen.append(WordTimestamp(word, round(start), None, is_exact=False))
    return foreseen
