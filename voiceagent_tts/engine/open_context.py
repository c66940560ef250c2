"""A context with its voice, its unread text and the builder of its sequences."""

from collections import deque
from dataclasses import dataclass, field

from voiceagent_tts.engine.sequence import EngineContext
from voiceagent_tts.engine.sequence_builder import SequenceBuilder
from voiceagent_tts.engine.voice_cache import LoadedVoice
from voiceagent_tts.errors import VoiceAgentError
from voiceagent_tts.seam.commands import Append, Flush, Submit


@dataclass(slots=True, kw_only=True)
class OpenContext(EngineContext):
    """A context with the parts that its sequences are built from.

    Attributes:
        voice: the voice; a context keeps it when the voice's file is replaced.
        builder: turns the text of the context into sequences.
        has_all_text: whether the client's last text has arrived; some of it may be unread.
        unread: text and flushes that the builder has not received, in order.
        fault: why the text cannot be read; None if it can.
    """

    voice: LoadedVoice
    builder: SequenceBuilder
    has_all_text: bool = False
    fault: VoiceAgentError | None = None
    unread: deque[Submit | Append | Flush] = field(default_factory=deque[Submit | Append | Flush])

    def raise_fault(self) -> None:
        """Raise what went wrong when the text was read.

        Raises:
            VoiceAgentError: the text cannot be read.
        """
        if self.fault is not None:
            raise self.fault
