"""`GET /v1/audio/voices` and `GET /v1/models`: which voices and models a client can request."""

from typing import Any

from fastapi import APIRouter, Request

from voiceagent_tts.server.speech import MODELS

router = APIRouter(tags=["voices"])


@router.get("/v1/audio/voices")
async def list_voices(request: Request) -> dict[str, Any]:
    """List the voices, the default first, with the languages of each."""
    synthesizer = request.app.state.server.synthesizer
    languages = {
        name: list(supervisor.capabilities.languages)
        for name, supervisor in synthesizer.supervisors.items()
    }
    voices = [synthesizer.voices.resolve(name) for name in synthesizer.voices.names()]
    return {
        "voices": [
            {"id": voice.name, "name": voice.name, "languages": languages[voice.worker]}
            for voice in voices
        ]
    }


@router.get("/v1/models")
async def list_models() -> dict[str, Any]:
    """List the accepted names of `model`; all of them select the engine of this server."""
    owner = {"object": "model", "created": 0, "owned_by": "voiceagent-tts"}
    return {"object": "list", "data": [{"id": name, **owner} for name in MODELS]}
