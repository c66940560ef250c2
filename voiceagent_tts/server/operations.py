"""Routes for operators: health checks and metrics.

Any answer to a health check shows that the event loop runs.
"""

from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from voiceagent_tts import __version__
from voiceagent_tts.server.state import ServerState

router = APIRouter(tags=["operations"])


@router.get("/health/live")
async def live() -> dict[str, str]:
    """Report that the process answers."""
    return {"status": "alive"}


@router.get("/health/ready", responses={503: {"description": "draining, or unhealthy"}})
async def ready(request: Request) -> Response:
    """Report whether new contexts can be opened: the engine works and the server does not drain."""
    state: ServerState = request.app.state.server
    headers = state.slots_header(request.scope)
    if state.is_draining:
        return JSONResponse({"status": "draining"}, 503, headers)
    if (problem := state.watchdog.problem) is not None:
        return JSONResponse({"status": "unhealthy", "reason": problem}, 503, headers)
    return JSONResponse({"status": "ready"}, 200, headers)


@router.get("/health")
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


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    """Report the metrics in the Prometheus text format."""
    state: ServerState = request.app.state.server
    return Response(state.metrics.render(), media_type="text/plain; version=0.0.4")
