"""What a client of ElevenLabs' dialect sends: options in the address, and messages.

Source: the API reference of ElevenLabs (text to speech, WebSocket and multi-context WebSocket), and
what the ElevenLabs classes of LiveKit Agents 1.8 and Pipecat 1.14 send. This module knows no order
of messages.
"""

import re
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Annotated, cast, get_args

from pydantic import Field, TypeAdapter, ValidationError

from voiceagent_tts.core import SAMPLE_RATE_HZ, Encoding
from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.plugins.dialects.shared import DialectModel
from voiceagent_tts.plugins.speech.containers import ContainerFormat
from voiceagent_tts.protocol.messages import (
    MAX_ID_CHARS,
    AudioFormat,
    Count,
    Name,
    SampleRate,
    Speed,
    WireModel,
)
from voiceagent_tts.protocol.refusals import refusal_of

_LIBRARY_VOICE = re.compile(r"[0-9A-Za-z]{20}")
"""Id of a voice in ElevenLabs' own library."""

_FORMAT = re.compile(r"(pcm|ulaw|alaw|mp3|opus)_([0-9]{4,5})(_[0-9]{2,3})?")
_ENCODINGS: dict[str, Encoding] = {
    "pcm": "pcm_s16le",
    "ulaw": "pcm_mulaw",
    "alaw": "pcm_alaw",
}
_CONTAINER_RATES: dict[str, tuple[int, ...]] = {"mp3": (22050, 24000, 44100), "opus": (48000,)}


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """ElevenLabs' `output_format`, such as `mp3_22050_32`; the bit rate at its end is ignored.

    Args:
        encoding: number format of bare samples; of the encoder's input in a container.
        container: kind of the compressed stream; None for bare samples.
        sample_rate_hz: rate of the audio that the client receives.
    """

    encoding: Encoding
    container: ContainerFormat | None
    sample_rate_hz: int

    @classmethod
    def parse(cls, name: str) -> "OutputFormat":
        """Read the name of a format.

        Raises:
            InvalidRequestError: there is no such format here.
        """
        match = _FORMAT.fullmatch(name)
        kind, rate_hz = (match[1], int(match[2])) if match else ("", 0)
        if kind in _ENCODINGS and rate_hz in get_args(SampleRate):
            return cls(_ENCODINGS[kind], None, rate_hz)
        if rate_hz in _CONTAINER_RATES.get(kind, ()):
            return cls("pcm_s16le", cast("ContainerFormat", kind), rate_hz)
        raise InvalidRequestError(
            "output_format: expected pcm_8000 to pcm_48000, ulaw_8000, alaw_8000, mp3_22050_32, "
            f"mp3_24000_48, mp3_44100_128 or opus_48000_32, got {name[:32]!r}",
            code=ErrorCode.INVALID_PARAM,
        )

    @property
    def audio(self) -> AudioFormat:
        """Format in which the dialect receives the audio of a context."""
        is_bare = self.container is None
        rate_hz = self.sample_rate_hz if is_bare else SAMPLE_RATE_HZ
        return AudioFormat(encoding=self.encoding, sample_rate=cast("SampleRate", rate_hz))


class SocketOptions(WireModel):
    """The options in the address of a socket; those not named here are ignored."""

    output_format: str = "mp3_44100_128"
    language_code: Name | None = None
    enable_ssml_parsing: bool = False
    inactivity_timeout: Annotated[int, Field(ge=1, le=180)] = 20
    """Seconds without text after which a context ends."""
    auto_mode: bool = False
    """Whether each text is a complete phrase, which must not wait for the next one."""
    seed: Count | None = None

    @classmethod
    def parse(cls, query: Mapping[str, str]) -> "SocketOptions":
        """Read the query of an address, whose values are all strings.

        Raises:
            InvalidRequestError: a value is not legal.
        """
        try:
            return cls.model_validate_strings(dict(query))
        except ValidationError as error:
            raise refusal_of(error) from None


_NAME = TypeAdapter[str](Name)


def voice_name(voice_id: str, known: Container[str]) -> str | None:
    """Name of a voice on this server; None, the first one, for a voice of ElevenLabs' library.

    Raises:
        InvalidRequestError: the id cannot be the name of a voice.
    """
    try:
        _NAME.validate_python(voice_id)
    except ValidationError:
        raise InvalidRequestError(
            f"voice_id: expected at most {MAX_ID_CHARS} printable characters, got "
            f"{voice_id[:32]!r}; GET /v1/voices lists the voices",
            code=ErrorCode.INVALID_VOICE,
        ) from None
    is_foreign = _LIBRARY_VOICE.fullmatch(voice_id) and voice_id not in known
    return None if is_foreign else voice_id


class VoiceSettings(DialectModel):
    """How to speak; stability, similarity and style are ignored."""

    speed: Speed | None = None


class _Paced(DialectModel):
    voice_settings: VoiceSettings | None = None

    @property
    def speed(self) -> float:
        """Speed of speech; 1.0 is normal."""
        settings = self.voice_settings
        return 1.0 if settings is None or settings.speed is None else settings.speed


class SocketMessage(_Paced):
    """A message of a client: text for a context, and what else to do with it."""

    text: str | None = None
    context_id: Name | None = None
    flush: bool | None = None
    close_context: bool | None = None
    close_socket: bool | None = None


class Credentials(WireModel):
    """The key in the first message of a socket whose client could not send a header."""

    xi_api_key: str


class TextRequest(_Paced):
    """The body of `POST /v1/text-to-speech/{voice_id}`; fields not named here are ignored."""

    text: str
    language_code: Name | None = None
    seed: Count | None = None
