"""A context together with the voice and the builder that its sequences are made of."""

from dataclasses import dataclass

from voiceagent_tts.engine.sequence import EngineContext
from voiceagent_tts.engine.sequence_builder import SequenceBuilder
from voiceagent_tts.engine.voice_cache import LoadedVoice


@dataclass(slots=True, kw_only=True)
class OpenContext(EngineContext):
    """A context with what its sequences are made of.

    Attributes:
        voice: the voice; a context keeps it when the voice's file is replaced.
        builder: turns the text of the context into sequences.
    """

    voice: LoadedVoice
    builder: SequenceBuilder
