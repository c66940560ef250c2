"""The messages that a client of vLLM-Omni's dialect sends.

Source: vLLM-Omni 0.30 (`protocol/audio.py`), and the messages of the Baseten plugin of LiveKit
Agents 1.8. This module knows no order of messages.
"""

from typing import Annotated, Literal

from pydantic import AliasChoices, Field, TypeAdapter

from voiceagent_tts.plugins.dialects.shared import DialectModel
from voiceagent_tts.protocol.messages import (
    MAX_INITIAL_FRAMES,
    MAX_INSTRUCT_CHARS,
    ContextOpen,
    Name,
    Speed,
    WireModel,
)

_MAX_SEED = 2**53

Split = Literal["none", "sentence", "clause"]


class SessionConfig(DialectModel):
    """Options of the utterances that follow."""

    type: Literal["session.config"]
    voice: Name | None = Field(default=None, validation_alias=AliasChoices("voice", "speaker"))
    language: Name | None = None
    instructions: Annotated[str, Field(max_length=MAX_INSTRUCT_CHARS)] | None = None
    response_format: Literal["pcm"] = "pcm"
    speed: Speed | None = None
    seed: int | None = None
    initial_codec_chunk_frames: Annotated[int, Field(ge=0)] | None = None
    ref_audio: None = None
    speaker_embedding: None = None
    split_granularity: Split | None = None
    word_timestamps: bool = False
    """vLLM-Omni's form of word times: audio as JSON, and a list of words after each sentence."""
    timestamp_type: Literal["word"] | None = None
    """Baseten's form: words in `audio.done` or, with strategy `async`, in `audio.timestamps`."""
    timestamp_transport_strategy: Literal["sync", "async"] = "sync"

    @property
    def sends_words_ahead(self) -> bool:
        """Whether a sentence ends as soon as the next words are known."""
        is_sync = self.timestamp_type and self.timestamp_transport_strategy == "sync"
        return bool(is_sync) and self.split_granularity is None and not self.word_timestamps

    def to_open(self, context_id: str) -> ContextOpen:
        """The message that opens the context of an utterance."""
        frames = self.initial_codec_chunk_frames
        return ContextOpen(
            context_id=context_id,
            voice=self.voice,
            language=self.language,
            instruct=self.instructions,
            speed=self.speed or 1.0,
            seed=None if self.seed is None else self.seed % _MAX_SEED,
            initial_frames=min(frames, MAX_INITIAL_FRAMES) if frames else None,
        )


class InputText(WireModel):
    """More text for the utterance."""

    type: Literal["input.text"]
    text: str


class InputDone(WireModel):
    """End the utterance; without text, a keepalive."""

    type: Literal["input.done"]


class SessionClose(WireModel):
    """Close the socket."""

    type: Literal["session.close"]


class VoiceList(WireModel):
    """Ask for the voices; allowed before `session.config`."""

    type: Literal["voice.list"]


class VoiceAdd(WireModel):
    """Clone a voice; refused, because voices are added on the server."""

    type: Literal["voice.add"]


CLIENT_MESSAGE: TypeAdapter[
    SessionConfig | InputText | InputDone | SessionClose | VoiceList | VoiceAdd
] = TypeAdapter(
    Annotated[
        SessionConfig | InputText | InputDone | SessionClose | VoiceList | VoiceAdd,
        Field(discriminator="type"),
    ]
)
