"""Times of characters in ElevenLabs' form, in chunks that are sent with the audio of a context.

This module knows no messages of clients and no audio.
"""

from collections import deque
from dataclasses import dataclass
from typing import Any

from voiceagent_tts.plugins.dialects.shared import known_ends_ms
from voiceagent_tts.protocol.messages import WordsMessage

_MOST_CHARS = 1_000
"""Words that wait for their audio are shorter, unless nothing is said of them."""


@dataclass(frozen=True, slots=True)
class _TimedWord:
    chars: str
    """The word, and one space where white space precedes or follows it."""
    starts_ms: list[int]
    end_ms: int


class CharacterAlignment:
    """Collects the words of one context and returns their characters, chunk by chunk.

    A chunk begins where the one before it ends, so that a client can add up their lengths; the
    first one begins with the context. White space of any length is one space, and there is one at
    the end of the text received so far, because clients complete a word at the space behind it.

    Args:
        counts_from_context: whether all times count from the first sample of the context, and not
            from the beginning of their chunk.
    """

    def __init__(self, *, counts_from_context: bool) -> None:
        self._counts_from_context = counts_from_context
        self._text = ""  # received, from the end of the last timed word on
        self._text_start = 0  # its position in the context's text
        self._words: deque[_TimedWord] = deque()  # not yet returned
        self._chars = 0  # of these words
        self._ends_with_space = True
        self._end_ms = 0  # of the last timed word
        self._chunk_ms = 0  # beginning of the next chunk

    def add_text(self, text: str) -> None:
        """Append text of the client, verbatim."""
        self._text += text

    def drop_text(self, chars: int) -> None:
        """Remove the last characters of the text, which were not accepted."""
        self._text = self._text[: max(0, len(self._text) - chars)]

    @property
    def is_full(self) -> bool:
        """Whether so many words wait that nothing can be said of most: no audio will come."""
        return self._chars > _MOST_CHARS

    def add_words(self, message: WordsMessage) -> None:
        """Append words with their times."""
        for word, start_ms, end_ms, char_start, char_end in zip(
            message.words,
            message.start_ms,
            known_ends_ms(message),
            message.char_start,
            message.char_end,
            strict=True,
        ):
            before = self._text[: min(char_start - self._text_start, _MOST_CHARS)]
            self._text = self._text[char_end - self._text_start :]
            self._text_start = char_end
            self._add_word(word, before, start_ms, end_ms)

    def _add_word(self, word: str, before: str, start_ms: int, end_ms: int) -> None:
        lead = " " if not self._ends_with_space and any(map(str.isspace, before)) else ""
        tail = " " if not self._text or self._text[0].isspace() else ""
        start_ms = max(start_ms, self._end_ms)
        length_ms = max(0, end_ms - start_ms)
        starts_ms = [start_ms + length_ms * index // len(word) for index in range(len(word))]
        chars = "".join(" " if char.isspace() else char for char in word)
        timed = [self._end_ms] * len(lead) + starts_ms + [start_ms + length_ms] * len(tail)
        self._words.append(_TimedWord(lead + chars + tail, timed, start_ms + length_ms))
        self._chars += len(timed)
        self._ends_with_space = bool(tail)
        self._end_ms = start_ms + length_ms

    def take(self, before_ms: int | None = None) -> dict[str, Any] | None:
        """Return the characters of the words that begin before a time, in milliseconds.

        Without a time, return those of all words; None if there are none.
        """
        words: list[_TimedWord] = []
        while self._words and (before_ms is None or self._words[0].starts_ms[0] < before_ms):
            words.append(self._words.popleft())
        if not words:
            return None
        base_ms = 0 if self._counts_from_context else self._chunk_ms
        end_ms = self._words[0].starts_ms[0] if self._words else words[-1].end_ms
        starts_ms = [start_ms for word in words for start_ms in word.starts_ms]
        self._chars -= len(starts_ms)
        ends_ms = [*starts_ms[1:], end_ms]
        durations_ms = [end - start for start, end in zip(starts_ms, ends_ms, strict=True)]
        self._chunk_ms = end_ms
        return {
            "chars": [char for word in words for char in word.chars],
            "charStartTimesMs": [start_ms - base_ms for start_ms in starts_ms],
            "charDurationsMs": durations_ms,
            "charsDurationsMs": durations_ms,  # as the reference spells it, which no client reads
        }


def in_seconds(alignment: dict[str, Any]) -> dict[str, Any]:
    """The form of the HTTP routes: starts and ends in seconds."""
    starts_ms, durations_ms = alignment["charStartTimesMs"], alignment["charDurationsMs"]
    return {
        "characters": alignment["chars"],
        "character_start_times_seconds": [start / 1000 for start in starts_ms],
        "character_end_times_seconds": [
            (start + length) / 1000 for start, length in zip(starts_ms, durations_ms, strict=True)
        ],
    }
