"""Messages between the server and a cloner process, which makes or checks one voice file.

A message is one line of JSON with its fields, and then its bytes. Knows no processes.
"""

import json
from dataclasses import dataclass
from typing import Any

from voiceagent_tts.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class CloneRecording:
    """Clones the voice of a recording.

    Args:
        samples: float32, little-endian, mono, 24 kHz.
        text: transcript of the recording; empty to clone the timbre alone.
        is_designed: whether a model has spoken the text, so that it need not be checked.
    """

    samples: bytes
    text: str = ""
    is_designed: bool = False


@dataclass(frozen=True, slots=True)
class CheckVoiceFile:
    """Checks that a file is a voice of the cloner's model."""

    voice_file: bytes


@dataclass(frozen=True, slots=True)
class VoiceFile:
    """The voice, as the engine loads it.

    Args:
        content: content of the voice file.
        warnings: a sentence for each measurement of the recording that may spoil the voice.
    """

    content: bytes
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CloneRefused:
    """The recording or the file cannot become a voice."""

    code: ErrorCode
    message: str


ClonerMessage = CloneRecording | CheckVoiceFile | VoiceFile | CloneRefused


def encode(message: ClonerMessage) -> bytes:
    """Serialise a message."""
    match message:
        case CloneRecording(samples, text, is_designed):
            return _join({"type": "clone", "text": text, "is_designed": is_designed}, samples)
        case CheckVoiceFile(voice_file):
            return _join({"type": "check"}, voice_file)
        case VoiceFile(content, warnings):
            return _join({"type": "voice", "warnings": warnings}, content)
        case CloneRefused(code, text):
            return _join({"type": "refused", "code": code.value, "message": text}, b"")


def decode(data: bytes) -> ClonerMessage:
    """Parse the output of `encode`.

    Raises:
        ValueError: the bytes are not such a message.
        KeyError: a field is missing.
    """
    line, _, content = data.partition(b"\n")
    fields: dict[str, Any] = json.loads(line)
    match fields["type"]:
        case "clone":
            return CloneRecording(content, fields["text"], fields["is_designed"])
        case "check":
            return CheckVoiceFile(content)
        case "voice":
            return VoiceFile(content, tuple(fields["warnings"]))
        case "refused":
            return CloneRefused(ErrorCode(fields["code"]), fields["message"])
        case other:
            raise ValueError(f"expected a message of a cloner, got {other!r}")


def _join(fields: dict[str, object], content: bytes) -> bytes:
    return json.dumps(fields).encode() + b"\n" + content
