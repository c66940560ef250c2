"""Routes of the core: health checks, metrics, the OpenAPI document and the list of voices.

Any answer to a health check shows that the event loop runs.
"""

import asyncio
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from voiceagent_tts import __version__
from voiceagent_tts.server.auth import caller_of
from voiceagent_tts.server.state import ServerState
from voiceagent_tts.voices import ListedVoice, Voice

if TYPE_CHECKING:
    from voiceagent_tts.server.voice_records import VoiceRecord

router = APIRouter()

_Make = Callable[[ServerState, str | None], Any]


@router.get("/health/live", tags=["operations"])
async def live() -> dict[str, str]:
    """Report that the process answers."""
    return {"status": "alive"}


@router.get(
    "/health/ready", tags=["operations"], responses={503: {"description": "draining, or unhealthy"}}
)
async def ready(request: Request) -> Response:
    """Report whether new contexts can be opened: the engine works and the server does not drain."""
    state: ServerState = request.app.state.server
    headers = state.slots_header(request.scope)
    if state.is_draining:
        return JSONResponse({"status": "draining"}, 503, headers)
    if (problem := state.watchdog.problem) is not None:
        return JSONResponse({"status": "unhealthy", "reason": problem}, 503, headers)
    return JSONResponse({"status": "ready"}, 200, headers)


@router.get("/health", tags=["operations"])
async def health(request: Request) -> dict[str, Any]:
    """Report the state of the server, for people; what its callers do, to an admin alone."""
    state: ServerState = request.app.state.server
    sees_callers = state.sees_callers(request.scope)
    workers: dict[str, dict[str, Any]] = {}
    for name, supervisor in state.synthesizer.supervisors.items():
        workers[name] = {
            "is_running": supervisor.worker is not None,
            "model": supervisor.capabilities.model,
            "max_rows": supervisor.capabilities.max_rows,
            "restarts": supervisor.restarts,
        }
        if sees_callers:
            workers[name]["rows_used"] = supervisor.worker.rows_used if supervisor.worker else 0
    counts = {
        "contexts_active": state.synthesizer.contexts_active,
        "sockets": len(state.sessions),
    }
    return {
        "version": __version__,
        "is_ready": state.is_ready,
        "is_draining": state.is_draining,
        **(counts if sees_callers else {}),
        "workers": workers,
    }


@router.api_route("/openapi.json", methods=["GET", "HEAD"], include_in_schema=False)
async def document(request: Request) -> Response:
    """Answer with the OpenAPI document."""
    from voiceagent_tts.server.openapi import made_document  # here: few clients ask for it

    return Response(await made_document(request.app), media_type="application/json")


@router.get("/metrics", tags=["operations"])
async def metrics(request: Request) -> Response:
    """Report the metrics in the Prometheus text format."""
    state: ServerState = request.app.state.server
    return Response(state.metrics.render(), media_type="text/plain; version=0.0.4")


class VoiceLists:
    """Makes the lists of voices in threads, one at a time: each has the record of every clone.

    Requests of a key that wait for the same list get the same.
    """

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._lane = asyncio.Lock()
        self._waiting: dict[tuple[_Make, str | None], asyncio.Task[bytes]] = {}

    async def answer(self, make: _Make, request: Request) -> Response:
        """The answer to a request for what `make` returns for its key."""
        wanted = make, caller_of(request.scope).key_id
        if wanted not in self._waiting:
            self._waiting[wanted] = asyncio.create_task(self._make(*wanted))
        data = await asyncio.shield(self._waiting[wanted])  # a client that goes leaves it to others
        return Response(data, media_type="application/json")

    async def _make(self, make: _Make, key_id: str | None) -> bytes:
        async with self._lane:
            del self._waiting[make, key_id]  # voices may change from now on
            return await asyncio.to_thread(
                lambda: json.dumps(make(self._state, key_id), ensure_ascii=False).encode()
            )


@router.get("/v1/audio/voices", tags=["voices"], response_model=dict[str, Any])
async def list_voices(request: Request) -> Response:
    """List the voices, the default first, with kind, language and gender of each.

    `language` is the language that the voice is made for; `languages` are those that it accepts.
    `takes_instruct` says whether a voice follows a description of how to speak, and
    `needs_instruct` whether it is made from one. `can_clone` and `can_design` say whether this
    server makes new voices. Clones have a `voice_id` and a `tag`.
    """
    lists: VoiceLists = request.app.state.voice_lists
    return await lists.answer(_voices, request)


def _voices(state: ServerState, key_id: str | None) -> dict[str, Any]:
    """The voices of a key; reads the file of each clone."""
    book = state.synthesizer.voices_of(key_id)
    listed = book.listed()
    has_clones = any(voice.stored for voice in listed)
    records = state.voice_records.voices() if has_clones else {}
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
                "languages": book.languages(
                    Voice(voice.details.name, voice.worker), capabilities[voice.worker]
                ),
                "takes_instruct": capabilities[voice.worker].takes_instruct,
                "needs_instruct": capabilities[voice.worker].needs_instruct,
                "voice_id": _field(records, voice, "id"),
                "tag": _field(records, voice, "tag"),
            }
            for voice in listed
        ],
        **state.new_voices(),
    }


def _field(records: "dict[str, VoiceRecord]", voice: ListedVoice, field: str) -> str | None:
    """A field of a clone's record; None for a clone without one, and for other voices."""
    record = records.get(voice.stored)
    return None if record is None else getattr(record, field)
