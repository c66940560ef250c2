"""Interface of an aligner inside its process: words and audio in, word times out.

A session follows one context on the engine's clock (samples at 24 kHz). Every committed time is
final: each word once, in order, as a verbatim span. Knows no processes and no deadlines.
"""

from collections.abc import Iterable
from typing import Protocol

from voiceagent_tts.core import Word, WordTimestamp


class AlignSession(Protocol):
    """Aligns the words of one context; calls return the words committed by them."""

    def append(self, words: Iterable[Word]) -> None:
        """Add words of the context, in order; the text may still be growing."""
        ...

    def push(self, pcm: bytes) -> tuple[WordTimestamp, ...]:
        """Align the context's next audio: PCM16, mono, 24 kHz, of any length."""
        ...

    def tentative(self) -> tuple[WordTimestamp, ...]:
        """Return the best times known now for the next uncommitted words, in order.

        They include the words that the audio so far has probably begun, and the few that follow.
        They may change with every push; none begins before the last committed word.
        """
        ...

    def end_segment(self, char_end: int) -> tuple[WordTimestamp, ...]:
        """Commit the words that begin before `char_end`: the audio so far has spoken them."""
        ...

    def finish(self) -> tuple[WordTimestamp, ...]:
        """Commit the remaining words, as all words and all audio have been pushed."""
        ...

    def close(self) -> None:
        """Drop the context; idempotent."""
        ...


class Aligner(Protocol):
    """Opens sessions; one aligner serves all contexts of a process."""

    def open(self, language: str, voice: str) -> AlignSession:
        """Follow a new context.

        Args:
            language: code with an optional region, as in `Submit`.
            voice: name under which the aligner keeps what it learns of the voice.
        """
        ...
