"""`GET /v1/audio/voices` and `GET /v1/models`: which voices and models a client can request."""

from typing import Any

from fastapi import APIRouter, Request

from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.server.speech import MODELS
from voiceagent_tts.server.state import ServerState

router = APIRouter(tags=["voices"])


@router.get("/v1/audio/voices")
async def list_voices(request: Request) -> dict[str, Any]:
    """List the voices, the default first, with kind, language and gender of each.

    `language` is the language that the voice is made for; `languages` are those that it accepts.
    `takes_instruct` says whether a voice follows a description of how to speak, and
    `needs_instruct` whether it is made from one. `can_clone` and `can_design` say whether this
    server makes new voices.
    """
    state: ServerState = request.app.state.server
    capabilities = {
        name: supervisor.capabilities for name, supervisor in state.synthesizer.supervisors.items()
    }
    return {
        "voices": [
            {
                "id": voice.details.name,
                "name": voice.details.name,
                "kind": voice.details.kind,
                "alias_of": voice.alias_of,
                "language": voice.details.language,
                "gender": voice.details.gender,
                "languages": list(capabilities[voice.worker].languages),
                "takes_instruct": capabilities[voice.worker].takes_instruct,
                "needs_instruct": capabilities[voice.worker].needs_instruct,
            }
            for voice in state.synthesizer.voices.listed()
        ],
        "can_clone": state.clone_model is not None,
        "can_design": state.designed_voice is not None,
    }


@router.get("/v1/models")
async def list_models() -> dict[str, Any]:
    """List the accepted names of `model`; all of them select the engine of this server."""
    return {"object": "list", "data": [_model(name) for name in MODELS]}


@router.get("/v1/models/{model}")
async def show_model(model: str) -> dict[str, Any]:
    """Describe one accepted name of `model`."""
    if model not in MODELS:
        raise InvalidRequestError(
            f"model: expected one of {', '.join(MODELS)}, got {model[:64]!r}",
            code=ErrorCode.NOT_FOUND,
        )
    return _model(model)


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "voiceagent-tts"}
