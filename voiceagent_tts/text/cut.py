"""The cut: which part of a text was heard, given its word times and the samples that were played.

A word counts as heard from its first sample on, which is how agent frameworks commit words.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Protocol

from voiceagent_tts.core import Cut, WordTimestamp, ms_to_samples


class TimedWords(Protocol):
    """Word times in order, of which a cut reads a few."""

    def __len__(self) -> int: ...

    def __getitem__(self, place: int, /) -> WordTimestamp: ...


@dataclass(frozen=True, slots=True)
class ChangedWords:
    """Words whose times are changed when they are asked for: a cut asks for few."""

    words: TimedWords
    change: Callable[[WordTimestamp], WordTimestamp]

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, place: int) -> WordTimestamp:
        return self.change(self.words[place])

    def __iter__(self) -> Iterator[WordTimestamp]:
        return map(self.__getitem__, range(len(self)))


@dataclass(frozen=True, slots=True)
class TimedText:
    """The text of a context with the times of its words: what `cut` needs, also after the end."""

    text: str  # verbatim
    words: TimedWords = ()  # as far as they are known
    sent_samples: int = 0  # audio sent to the listener
    is_final: bool = False  # whether all of `text` has its words: no more will come

    def cut(self, played_samples: int) -> Cut:
        """Return the cut at a playback position, limited to the audio sent.

        At the end the last millisecond counts as played: clients know the length in whole ones.
        """
        heard = max(0, min(played_samples, self.sent_samples))
        if self.is_final and heard >= max(1, self.sent_samples - ms_to_samples(1)):
            heard = self.sent_samples
        return cut_text(self.text, self.words, heard, is_final=self.is_final)


def cut_text(text: str, words: TimedWords, played_samples: int, *, is_final: bool) -> Cut:
    """Split `text` into what was heard and what was not.

    `text_spoken` ends with the last word heard. Once no more words will come and the last word has
    been played to its end (or has begun, if its end is unknown), it is the whole text, with
    trailing white space and emoji. A text without words stays unspoken until some audio, even
    silence, of a final context was played.

    Args:
        text: all text of the context; the offsets of the words count in it.
        words: word times known so far, in order.
        played_samples: samples of this context that were played, not counting silence from
            underruns.
        is_final: whether no more words will come for this context.

    Returns:
        A cut whose two texts, joined, are `text`.
    """
    heard = bisect_left(words, played_samples, key=_start_sample)
    last = words[heard - 1] if heard else None
    end_sample = None if last is None else last.end_sample
    has_end_ahead = end_sample is not None and end_sample > played_samples
    if is_final and played_samples > 0 and heard == len(words) and not has_end_ahead:
        return Cut(text, "", is_partial=False)
    if last is None:
        return Cut("", text, is_partial=False)
    end = last.word.char_end
    return Cut(text[:end], text[end:], end_sample is None or has_end_ahead)


_start_sample = attrgetter("start_sample")


def keep_inside(words: TimedWords, audio_samples: int) -> ChangedWords:
    """Return the words with every start and end moved into the audio, whose length is known.

    A time that was sent before its audio existed may lie after the end of it, as an estimate or
    where audio was stretched. When the audio was played to the end, all words were heard.
    """
    return ChangedWords(words, partial(_inside, audio_samples))


def _inside(audio_samples: int, word: WordTimestamp) -> WordTimestamp:
    if word.start_sample >= audio_samples and word.start_sample:
        return replace(word, start_sample=max(0, audio_samples - 1), end_sample=None)
    if word.end_sample is not None and word.end_sample > audio_samples:
        return replace(word, end_sample=audio_samples)
    return word
