"""What dialects share whose clients expect the end of every word."""

from itertools import pairwise

from voiceagent_tts.protocol.messages import WordsMessage

_GUESSED_MS_PER_CHAR = 1000 / 15


def known_ends_ms(message: WordsMessage) -> list[int]:
    """End of each word in milliseconds, for clients that require one.

    A word with an unknown end lasts until the next word. The last word lasts as long as words of
    its length do on average.
    """
    if not message.words:
        return []
    guess = message.start_ms[-1] + round(len(message.words[-1]) * _GUESSED_MS_PER_CHAR)
    next_starts = [start for _, start in pairwise(message.start_ms)] + [guess]
    return [
        next_start if end is None else end
        for end, next_start in zip(message.end_ms, next_starts, strict=True)
    ]
