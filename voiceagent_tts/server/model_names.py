"""Names of models that requests may have: none of them selects an engine, some have a language."""

import re
from collections.abc import Collection
from typing import Literal

from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.text.language import normalize_language

MODELS = ("qwen3-tts", "qwen-tts", "tts-1", "tts-1-hd", "gpt-4o-mini-tts", "kokoro")
"""Names that programs for other services send, whatever model this server has."""

Task = Literal["CustomVoice", "VoiceDesign", "Base"]
"""Where a voice comes from: the model, a description, or a recording."""

_PUBLISHED = re.compile(
    r"(?:Qwen/)?Qwen3-TTS-12Hz-[\d.]+B-(CustomVoice|VoiceDesign|Base)", re.IGNORECASE
)
_SNAPSHOT = re.compile(r"-(?:\d{4}-\d{2}-\d{2}|\d{4})(?=-|$)")
"""The date at the end of a name: `gpt-4o-mini-tts-2025-12-15`, `tts-1-1106`."""
_TASKS: dict[str, Task] = {
    "customvoice": "CustomVoice",
    "voicedesign": "VoiceDesign",
    "base": "Base",
}


def task_of(model: str) -> Task | None:
    """What a published Qwen3-TTS model is for; None for other names."""
    published = _PUBLISHED.fullmatch(model)
    return None if published is None else _TASKS[published[1].casefold()]


def language_of(model: str, served: Collection[str] = ()) -> str | None:
    """The language at the end of a model's name: `zh` for `tts-1-hd-zh`; None without one.

    Args:
        model: the name in the request.
        served: names of the models that this server has.

    Raises:
        InvalidRequestError: there is no such model.
    """
    if model in served or task_of(model) is not None:
        return None
    undated = _SNAPSHOT.sub("", model, count=1)
    for name in sorted(MODELS, key=len, reverse=True):
        if undated == name:
            return None
        if undated.startswith(f"{name}-") and _is_language(undated[len(name) + 1 :]):
            return undated[len(name) + 1 :]
    raise InvalidRequestError(
        f"model: expected one of {', '.join(MODELS)}, optionally with a language (tts-1-hd-zh), or "
        f"another name of GET /v1/models, got {model[:64]!r}",
        code=ErrorCode.INVALID_PARAM,
    )


def _is_language(name: str) -> bool:
    try:
        normalize_language(name)
    except InvalidRequestError:
        return False
    return True
