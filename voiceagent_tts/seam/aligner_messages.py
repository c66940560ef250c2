"""What the server and the process of an aligner say to each other.

Commands go in, `Aligned` comes out, beside the messages of `core` that mean the same here: audio
steps, segment ends and `Cancel` are commands, `Done`, `Cancelled` and `Failed` are answers.
Positions are samples on the engine's clock. Knows no sockets.
"""

from collections.abc import Callable
from dataclasses import dataclass

from voiceagent_tts.core import Word, WordTimestamp
from voiceagent_tts.seam.commands import Cancel
from voiceagent_tts.seam.events import AudioStep, Cancelled, Done, Failed, SegmentEnd


@dataclass(frozen=True, slots=True)
class Follow:
    """Follow a new context; arguments as for `Aligner.open`."""

    context: int
    language: str
    voice: str


@dataclass(frozen=True, slots=True)
class Expect:
    """More words of a context, in order, each once."""

    context: int
    words: tuple[Word, ...]


@dataclass(frozen=True, slots=True)
class Finish:
    """All words and all audio are there; answered by the rest of the words, then by `Done`."""

    context: int


AlignCommand = Follow | Expect | AudioStep | SegmentEnd | Finish | Cancel


@dataclass(frozen=True, slots=True)
class Aligned:
    """What an aligner knows of a context.

    `words` are final, in order, each word once. `outlook` replaces the outlook before: guesses for
    words that are not final. `end_sample` is how much of the audio it has heard.
    """

    context: int
    words: tuple[WordTimestamp, ...]
    outlook: tuple[WordTimestamp, ...]
    end_sample: int


AlignEvent = Aligned | Done | Cancelled | Failed

AlignInbox = Callable[[], list[AlignCommand]]
"""Takes the commands that have arrived since the last call; never blocks."""

AlignOutbox = Callable[[AlignEvent], None]
"""Takes one answer, which is on its way when the call returns."""
