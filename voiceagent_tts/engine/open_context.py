"""A context with its voice and the builder of its sequences."""

from dataclasses import dataclass

from voiceagent_tts.engine.sequence import EngineContext
from voiceagent_tts.engine.sequence_builder import SequenceBuilder
from voiceagent_tts.engine.voice_cache import LoadedVoice


@dataclass(slots=True, kw_only=True)
class OpenContext(EngineContext):
    """A context with the parts that its sequences are built from.

    Attributes:
        voice: the voice; a context keeps it when the voice's file is replaced.
        builder: turns the text of the context into sequences.
    """

    voice: LoadedVoice
    builder: SequenceBuilder
