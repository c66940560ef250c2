"""Names of models: those that requests may send, and `GET /v1/models`.

No name of a model selects an engine; some select a language.
"""

import re
from collections.abc import Collection
from typing import Any, Literal, get_args

from fastapi import APIRouter, Request

from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.server.state import ServerState
from voiceagent_tts.text.language import normalize_language

router = APIRouter(tags=["voices"])

MODELS = ("qwen3-tts", "qwen-tts", "tts-1", "tts-1-hd", "gpt-4o-mini-tts", "kokoro")
"""Names that programs for other services send, whatever model this server has."""

Task = Literal["CustomVoice", "VoiceDesign", "Base"]
"""Where a voice comes from: the model, a description, or a recording."""

_PUBLISHED = re.compile(
    r"(?:Qwen/)?Qwen3-TTS-12Hz-[\d.]+B-(CustomVoice|VoiceDesign|Base)", re.IGNORECASE
)
_SNAPSHOT = re.compile(r"-(?:\d{4}-\d{2}-\d{2}|\d{4})(?=-|$)")
"""The date at the end of a name: `gpt-4o-mini-tts-2025-12-15`, `tts-1-1106`."""
_TASKS: dict[str, Task] = {each.casefold(): each for each in get_args(Task)}


def task_of(model: str) -> Task | None:
    """What a published Qwen3-TTS model is for; None for other names."""
    published = _PUBLISHED.fullmatch(model)
    return None if published is None else _TASKS[published[1].casefold()]


def language_of(model: str, served: Collection[str] = ()) -> str | None:
    """The language at the end of a model's name: `zh` for `tts-1-hd-zh`; None without one."""
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


@router.get("/v1/models")
async def list_models(request: Request) -> dict[str, Any]:
    """List the models of this server, and other accepted names of `model`, which select them."""
    state: ServerState = request.app.state.server
    return {"object": "list", "data": [_model(name) for name in (*state.models, *MODELS)]}


@router.get("/v1/models/{model:path}")
async def show_model(request: Request, model: str) -> dict[str, Any]:
    """Describe one accepted name of `model`, which may end with a language: `tts-1-zh`."""
    state: ServerState = request.app.state.server
    try:
        language = language_of(model, state.models)
        if language is not None:
            _check_language(language, state)
    except InvalidRequestError as error:
        raise InvalidRequestError(error.message, code=ErrorCode.NOT_FOUND) from None
    return _model(model)


def _check_language(language: str, state: ServerState) -> None:
    code = normalize_language(language)
    workers = state.synthesizer.supervisors.values()
    known = {known for worker in workers for known in worker.capabilities.languages}
    if known.isdisjoint((code, code.partition("-")[0])):
        raise InvalidRequestError(
            f"model: expected a language of this server at its end, got {code!r}"
        )


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "voiceagent-tts"}
