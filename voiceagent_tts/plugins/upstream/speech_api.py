"""OpenAI's speech API as a client: requests, voices, and what its errors mean.

Source: https://platform.openai.com/docs/api-reference/audio/createSpeech; the forms of the list of
voices are those of Kokoro-FastAPI, vLLM-Omni and this package. Errors never quote an answer: it may
quote the text to speak. This module does no I/O.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from voiceagent_tts.errors import EngineError, OverloadedError, VoiceAgentError

OPENAI_VOICES = (
    "alloy", "ash", "ballad", "coral", "echo", "fable", "onyx", "nova", "sage", "shimmer", "verse",
)  # fmt: skip
"""Voices of servers that do not list theirs."""

_RETRIED_STATUS = frozenset((429, 500, 502, 503, 504))
_LONGEST_WAIT_S = 2.0
_AUDIO_TYPES = ("audio/", "application/octet-stream", "binary/octet-stream")
_CONTAINERS = (b"RIFF", b"fLaC", b"OggS", b"ID3")


@dataclass(frozen=True, slots=True)
class SpeechRequest:
    """A text to speak, and how.

    Attributes:
        instruct: how to speak; None without an instruction.
    """

    text: str
    voice: str
    instruct: str | None = None


@dataclass(frozen=True, slots=True)
class SpeechAPI:
    """The API of one server.

    Attributes:
        url: its address up to `/audio/speech`, such as `http://127.0.0.1:8880/v1`.
        fields: further fields of every request, for what servers add to the API.
    """

    url: str
    model: str
    fields: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def address(self) -> str:
        """The address for messages."""
        return place_of(self.url)

    def body(self, request: SpeechRequest) -> dict[str, Any]:
        """The body of `POST /audio/speech`, for raw PCM16."""
        own = {
            "model": self.model,
            "input": request.text,
            "voice": request.voice,
            "response_format": "pcm",
        }
        if request.instruct:
            own["instructions"] = request.instruct
        return {**own, **self.fields}

    def failure(self, status: int, retry_after: str | None) -> VoiceAgentError:
        """The error for an answer with this status, other than success."""
        what = f"the upstream {self.address} answered with HTTP {status}"
        if status in (401, 403):
            return EngineError(f"{what}: it refuses the key; set VOICEAGENT_TTS_UPSTREAM_KEY")
        if status == 429:
            wait_s = seconds_of(retry_after)
            return OverloadedError(
                f"{what}: its limit is reached",
                retry_after_ms=1000 if wait_s is None else round(1000 * wait_s),
            )
        if status == 404:
            return EngineError(
                f"{what}: expected a server with /audio/speech and the model {self.model!r}; see "
                "VOICEAGENT_TTS_UPSTREAM and VOICEAGENT_TTS_UPSTREAM_MODEL"
            )
        if status < 500:
            return EngineError(f"{what}: it does not accept the request, perhaps the voice")
        return EngineError(f"{what}: it has failed")

    def check_audio(self, content_type: str, first: bytes) -> None:
        """Check that an answer is raw PCM.

        Raises:
            EngineError: it is something else.
        """
        if not content_type.startswith(_AUDIO_TYPES):
            got = content_type.partition(";")[0][:40] or "no Content-Type"
        elif first.startswith(_CONTAINERS):
            got = "an audio file"
        else:
            return
        raise EngineError(f"the upstream {self.address}: expected raw PCM, got {got}")


def place_of(url: str) -> str:
    """An address for messages, without the secrets that it may carry."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}"


def retry_wait_s(status: int, retry_after: str | None, usual_s: float) -> float | None:
    """Seconds after which a request that got this status is sent again; None for never."""
    if status not in _RETRIED_STATUS:
        return None
    asked_s = seconds_of(retry_after)
    if asked_s is None:
        return usual_s
    return asked_s if asked_s <= _LONGEST_WAIT_S else None


def seconds_of(retry_after: str | None) -> float | None:
    """The seconds of a Retry-After header; None without one, or for a date."""
    try:
        wait_s = float(retry_after or "")
    except ValueError:
        return None
    return max(0.0, wait_s) if math.isfinite(wait_s) else None


def voices_in(answer: Any) -> list[str]:
    """The names in a server's list of voices, in its order; empty if it has another form."""
    if isinstance(answer, dict):
        answer = next((answer[name] for name in ("voices", "data") if name in answer), None)
    if not isinstance(answer, list):
        return []
    named = [each if isinstance(each, str) else _name(each) for each in answer]
    return list(dict.fromkeys(name for name in named if name))


def _name(voice: Any) -> str | None:
    if not isinstance(voice, dict) or voice.get("alias_of"):
        return None
    name = voice.get("id") or voice.get("voice_id") or voice.get("name")
    return name if isinstance(name, str) else None
