"""Routes for operators: health checks, metrics, and usage by key and day.

An answer at all shows that the event loop runs.
"""

from datetime import date
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse

from voiceagent_tts import __version__
from voiceagent_tts.access.keys import ANONYMOUS, Scope
from voiceagent_tts.access.usage import MAX_DAYS, Used
from voiceagent_tts.server.auth import caller_of
from voiceagent_tts.server.state import SLOTS_HEADER, ServerState

router = APIRouter(tags=["operations"])


@router.get("/health/live")
async def live() -> dict[str, str]:
    """Report that the process answers."""
    return {"status": "alive"}


@router.get("/health/ready", responses={503: {"description": "draining, or unhealthy"}})
async def ready(request: Request) -> Response:
    """Report whether new contexts can be opened: the engine works and the server does not drain."""
    state: ServerState = request.app.state.server
    headers = {SLOTS_HEADER: str(state.slots_free)}
    if state.is_draining:
        return JSONResponse({"status": "draining"}, 503, headers)
    if (problem := state.watchdog.problem) is not None:
        return JSONResponse({"status": "unhealthy", "reason": problem}, 503, headers)
    return JSONResponse({"status": "ready"}, 200, headers)


@router.get("/health")
async def health(request: Request) -> dict[str, Any]:
    """Report the state of the server, for people."""
    state: ServerState = request.app.state.server
    workers = {
        name: {
            "is_running": supervisor.worker is not None,
            "model": supervisor.capabilities.model,
            "rows_used": supervisor.worker.rows_used if supervisor.worker else 0,
            "max_rows": supervisor.capabilities.max_rows,
            "restarts": supervisor.restarts,
        }
        for name, supervisor in state.synthesizer.supervisors.items()
    }
    return {
        "version": __version__,
        "is_ready": state.is_ready,
        "is_draining": state.is_draining,
        "contexts_active": state.synthesizer.contexts_active,
        "sockets": len(state.sessions),
        "workers": workers,
    }


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    """Report the metrics in the Prometheus text format."""
    state: ServerState = request.app.state.server
    return Response(state.metrics.render(), media_type="text/plain; version=0.0.4")


@router.get("/v1/usage")
async def show_usage(
    request: Request,
    days: Annotated[
        int, Query(ge=1, le=MAX_DAYS, description="Number of days, with today (UTC).")
    ] = 30,
) -> dict[str, Any]:
    """List contexts, characters and seconds of audio of each key and day, the newest day first.

    A key with the scope `admin` sees all keys, others only themselves. `since_start` says whether
    the numbers begin with the start of this server, which has no Redis.
    """
    state: ServerState = request.app.state.server
    caller = caller_of(request.scope)
    key = state.keys.get(caller.key_id or "")
    sees_all = caller.key_id is None or (key is not None and Scope.ADMIN in key.scopes)
    used = await state.usage.read(days)
    rows = [
        _row(state, day, key_id, used[day][key_id])
        for day in sorted(used, reverse=True)
        for key_id in sorted(used[day])
        if sees_all or key_id == caller.key_id
    ]
    return {"data": rows, "since_start": state.settings.redis is None}


def _row(state: ServerState, day: date, key_id: str, used: Used) -> dict[str, Any]:
    key = state.keys.get(key_id)
    return {
        "date": day.isoformat(),
        "key_id": key_id,
        "name": ANONYMOUS if key_id == ANONYMOUS else key.name if key else None,
        "contexts": used.contexts,
        "characters": used.chars,
        "audio_seconds": used.audio_ms / 1000,
    }
