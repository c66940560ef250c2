"""The cut: what was heard of a text, given its word times and how much audio left the speaker.

A word counts as heard from its first sample on, which is how agent frameworks commit words. This
module knows no clock and no network: whoever asks says how many samples were played.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace

from voiceagent_tts.core import Cut, WordTimestamp


def cut_text(
    text: str, words: Sequence[WordTimestamp], played_samples: int, *, is_final: bool
) -> Cut:
    """Split `text` at what was heard when `played_samples` of its context have been played.

    `text_spoken` ends at the end of the last word heard. It is the whole text, with trailing white
    space and emoji, once no more words will come and playback has reached the end of the last
    word, or that end is unknown. A text that turned out to have no words makes no sound and stays
    unspoken until something, be it silence, was played of a context that is final.

    Args:
        text: all text of the context, as its word offsets count.
        words: the word times known so far, in order.
        played_samples: samples of this context that left the speaker, gaps excluded.
        is_final: no more words will come for this context.

    Returns:
        A cut whose two texts joined are `text`.
    """
    heard = bisect_left(words, played_samples, key=_start_sample)
    last = words[heard - 1] if heard else None
    if is_final and played_samples > 0 and heard == len(words) and _is_over(last, played_samples):
        return Cut(text, "", is_partial=False)
    if last is None:
        return Cut("", text, is_partial=False)
    end = last.word.char_end
    is_partial = last.end_sample is None or last.end_sample > played_samples
    return Cut(text[:end], text[end:], is_partial)


def _start_sample(word: WordTimestamp) -> int:
    return word.start_sample


def _is_over(last: WordTimestamp | None, played_samples: int) -> bool:
    """Whether nothing of the last word is left to play, as far as its end is known."""
    return last is None or last.end_sample is None or last.end_sample <= played_samples


def keep_inside(words: Sequence[WordTimestamp], audio_samples: int) -> list[WordTimestamp]:
    """`words` with every start before the end of the audio, now that its length is known.

    A guess leaves ahead of the sound and may lie behind the end of it; heard to the end, all words
    were heard.
    """
    last_start = max(0, audio_samples - 1)
    return [
        replace(word, start_sample=last_start, end_sample=None)
        if word.start_sample > last_start
        else word
        for word in words
    ]
