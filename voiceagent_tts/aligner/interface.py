"""The seam of aligners: a context's words and sound go in, word times come out.

A session follows one context on the engine's clock (samples at 24 kHz). What it commits is final:
every word once, in order, as a verbatim span. Knows no processes, no deadlines and no listeners.
"""

from collections.abc import Iterable
from typing import Protocol

from voiceagent_tts.core import Word, WordTimestamp


class AlignSession(Protocol):
    """One context's; every call returns the words that it has just committed."""

    def append(self, words: Iterable[Word]) -> None:
        """More words of the context, in order; the text may still be growing."""
        ...

    def push(self, pcm: bytes) -> tuple[WordTimestamp, ...]:
        """The context's next audio: PCM16, mono, 24 kHz, of any length."""
        ...

    def outlook(self) -> tuple[WordTimestamp, ...]:
        """The best guess now for the words that come next and are not committed, in order.

        It holds those that the sound so far has probably begun and the few that follow. It may
        change with every push; none of it begins before the last committed word.
        """
        ...

    def end_segment(self, char_end: int) -> tuple[WordTimestamp, ...]:
        """The words that begin before `char_end` have been spoken in the audio pushed so far."""
        ...

    def finish(self) -> tuple[WordTimestamp, ...]:
        """All words and all audio are there: commit what is left."""
        ...

    def close(self) -> None:
        """Forget the context; idempotent."""
        ...


class Aligner(Protocol):
    """Opens sessions; one for all contexts of a process."""

    def open(self, language: str, voice: str) -> AlignSession:
        """Follow a new context.

        Args:
            language: code with an optional region, as `Submit` has it.
            voice: a key under which what is learnt of a voice's sound and pace is kept.
        """
        ...
