"""The realtime speech API of Alibaba Cloud Model Studio (DashScope): its messages, without I/O.

A socket is a session with one voice. A text is appended and committed, and the answer is a
response: audio in base64, and its end. Errors never quote a message, which may quote the text.

Sources: https://www.alibabacloud.com/help/en/model-studio/qwen-tts-realtime-client-events and
https://www.alibabacloud.com/help/en/model-studio/qwen-tts-realtime-server-events; the package
`dashscope` 2.0.2, which is the service's own client.
"""

import base64
import binascii
import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from voiceagent_tts.errors import EngineError, OverloadedError, VoiceAgentError
from voiceagent_tts.upstream.speech_api import SpeechRequest, place_of

REALTIME_VOICES = (
    "Cherry", "Ethan", "Nofish", "Jennifer", "Ryan", "Katerina", "Elias", "Jada", "Dylan", "Sunny",
    "Li", "Marcus", "Roy", "Peter", "Rocky", "Kiki", "Eric",
)  # fmt: skip
"""The voices of `qwen3-tts-flash-realtime` when it was released; the service lists none."""
LANGUAGE_TYPES = {
    "zh": "Chinese", "en": "English", "de": "German", "it": "Italian", "pt": "Portuguese",
    "es": "Spanish", "ja": "Japanese", "ko": "Korean", "fr": "French", "ru": "Russian",
}  # fmt: skip
"""The service's names of languages, by our codes."""

_CODE = re.compile(r"[\w.\-]{1,64}")
_BUSY = re.compile(r"throttl|rate.?limit|too.?many|quota|busy", re.IGNORECASE)
_KEY = re.compile(r"api.?key|auth|access.?denied", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class RealtimeAPI:
    """The API at one address.

    Attributes:
        url: its address, such as `wss://dashscope-intl.aliyuncs.com/api-ws/v1/realtime`.
        model: name of the model.
        fields: further fields of every session, such as `{"volume": 60}`.
    """

    url: str
    model: str
    fields: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def place(self) -> str:
        """The address for messages."""
        return place_of(self.url)

    @property
    def address(self) -> str:
        """The address of a session: with the model, unless it names one."""
        parts = urlsplit(self.url)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        return urlunsplit(parts._replace(query=urlencode({"model": self.model, **query})))

    @property
    def takes_instruct(self) -> bool:
        """Whether the model follows instructions."""
        return "instruct" in self.model

    def session(self, request: SpeechRequest) -> dict[str, Any]:
        """The configuration of a session that speaks a request; equal ones can share a session."""
        code = (request.language or "").partition("-")[0]
        own: dict[str, Any] = {
            "voice": request.voice,
            "mode": "commit",
            "language_type": LANGUAGE_TYPES.get(code, "Auto"),
            "response_format": "pcm",
            "sample_rate": 24_000,
        }
        if request.instruct and self.takes_instruct:
            own["instructions"] = request.instruct
        return {**own, **self.fields}

    def audio(self, event: Mapping[str, Any]) -> bytes:
        """The PCM of a `response.audio.delta`.

        Raises:
            EngineError: it has none.
        """
        try:
            return base64.b64decode(event["delta"], validate=True)
        except (KeyError, TypeError, binascii.Error):
            raise self.unexpected("response.audio.delta") from None

    def refused(self, event: Mapping[str, Any]) -> VoiceAgentError:
        """The error for an `error` event."""
        details = event.get("error")
        code = str(details.get("code") if isinstance(details, dict) else "")
        shown = code if _CODE.fullmatch(code) else "without a code"
        what = f"the upstream {self.place} answered with the error {shown}"
        if _KEY.search(code):
            return EngineError(f"{what}: it refuses the key; set VOICEAGENT_TTS_UPSTREAM_KEY")
        if _BUSY.search(code):
            return OverloadedError(f"{what}: its limit is reached")
        return EngineError(f"{what}: it does not accept the request, perhaps the voice")

    def unexpected(self, kind: str) -> EngineError:
        """The error for a message that the API does not have here."""
        shown = kind if _CODE.fullmatch(kind) else "without a type"
        return EngineError(
            f"the upstream {self.place} sent a message that was not expected: {shown}"
        )

    def parse(self, message: str | bytes) -> dict[str, Any]:
        """Parse a message of the service.

        Raises:
            EngineError: it is no JSON object with a type.
        """
        try:
            event = json.loads(message)
        except (ValueError, RecursionError):
            event = None
        if not isinstance(event, dict) or not isinstance(event.get("type"), str):
            raise self.unexpected("")
        return event


def message(kind: str, **fields: Any) -> str:
    """A message of the client."""
    return json.dumps({"event_id": f"event_{uuid.uuid4().hex}", "type": kind, **fields})
