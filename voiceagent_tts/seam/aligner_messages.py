"""Messages between the server and an aligner process.

Besides the messages below, an aligner receives the engine's `AudioStep`, `SegmentEnd` and `Cancel`,
and answers with `Done`, `Cancelled` and `Failed`. Positions are samples on the engine's clock.
"""

from collections.abc import Callable
from dataclasses import dataclass

from voiceagent_tts.core import Word, WordTimestamp
from voiceagent_tts.seam.commands import Cancel
from voiceagent_tts.seam.events import AudioStep, Cancelled, Done, Failed, SegmentEnd


@dataclass(frozen=True, slots=True)
class Follow:
    """Follow a new context."""

    context: int
    language: str  # lower-case code with an optional region, as in `Submit`
    voice: str  # under which the aligner keeps what it learns of the voice


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
    """Word times of a context."""

    context: int
    words: tuple[WordTimestamp, ...]  # final, in order, each word once
    tentative: tuple[WordTimestamp, ...]
    """Of the next words, which may still change; they replace the last ones."""
    end_sample: int  # of the audio that the times take into account


AlignEvent = Aligned | Done | Cancelled | Failed

KINDS = {kind.__name__: kind for kind in (Follow, Expect, Finish, Aligned)}
"""The messages that only aligners exchange, by name."""

AlignInbox = Callable[[], list[AlignCommand]]
"""Returns the commands that have arrived since the last call; never blocks."""

AlignOutbox = Callable[[AlignEvent], None]  # sends one answer; returns when it is on its way
