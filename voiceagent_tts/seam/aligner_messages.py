"""Messages between the server and an aligner process.

Besides the messages below, an aligner receives the engine's `AudioStep`, `SegmentEnd` and `Cancel`,
and answers with `Done`, `Cancelled` and `Failed`. Positions are samples on the engine's clock.
Knows no sockets.
"""

from collections.abc import Callable
from dataclasses import dataclass

from voiceagent_tts.core import Word, WordTimestamp
from voiceagent_tts.seam.commands import Cancel
from voiceagent_tts.seam.events import AudioStep, Cancelled, Done, Failed, SegmentEnd


@dataclass(frozen=True, slots=True)
class Follow:
    """Follow a new context.

    Args:
        context: the server's number for it.
        language: lower-case code with an optional region, as in `Submit`.
        voice: name under which the aligner keeps what it learns of the voice.
    """

    context: int
    language: str
    voice: str


@dataclass(frozen=True, slots=True)
class Expect:
    """Adds words of a context, in order, each once."""

    context: int
    words: tuple[Word, ...]


@dataclass(frozen=True, slots=True)
class Finish:
    """All words and all audio have been sent; answered by the remaining words, then `Done`."""

    context: int


AlignCommand = Follow | Expect | AudioStep | SegmentEnd | Finish | Cancel


@dataclass(frozen=True, slots=True)
class Aligned:
    """Word times of a context.

    Args:
        context: the server's number for it.
        words: final times, in order, each word once.
        tentative: times of the next words, which may still change; replaces the last ones.
        end_sample: end of the audio that the times take into account.
    """

    context: int
    words: tuple[WordTimestamp, ...]
    tentative: tuple[WordTimestamp, ...]
    end_sample: int


AlignEvent = Aligned | Done | Cancelled | Failed

AlignInbox = Callable[[], list[AlignCommand]]
"""Returns the commands that have arrived since the last call; never blocks."""

AlignOutbox = Callable[[AlignEvent], None]
"""Sends one answer; returns when it is on its way."""
