"""Which words of a reply were heard, given their times and the length that was played."""

from collections.abc import Iterable
from dataclasses import dataclass

from voiceagent_tts.core import WordTimestamp, ms_to_samples

HEARD_SAMPLES = ms_to_samples(20)
"""Played length from which a word counts as heard."""


@dataclass(frozen=True, slots=True)
class Heard:
    """The words of a reply that were played, by their index in the reply.

    Args:
        finished: words that were played to their end.
        heard: words of which at least 20 ms were played.
        begun: words of which at least one sample was played.
        unknown_s: length of played audio that is not the engine's, where its audio is known.
    """

    finished: frozenset[int]
    heard: frozenset[int]
    begun: frozenset[int]
    unknown_s: float = 0.0


def heard_in(words: Iterable[WordTimestamp], played_samples: int, base: int = 0) -> Heard:
    """The words heard in the first `played_samples` of their audio; `base` is the first index."""
    finished, heard, begun = set[int](), set[int](), set[int]()
    for number, word in enumerate(words, base):
        heard_at = word.start_sample + HEARD_SAMPLES
        if max(word.end_sample or 0, heard_at) <= played_samples:
            finished.add(number)
        if heard_at <= played_samples:
            heard.add(number)
        if word.start_sample < played_samples:
            begun.add(number)
    return Heard(frozenset(finished), frozenset(heard), frozenset(begun))
