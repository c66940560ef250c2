"""`GET /v1/usage`: usage by key and day."""

from datetime import date
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from voiceagent_tts.plugins.redis.connection import connect
from voiceagent_tts.plugins.usage.book import ANONYMOUS, MAX_DAYS, UsageBook, Used
from voiceagent_tts.server.auth import caller_of
from voiceagent_tts.server.state import ServerHooks, ServerState

router = APIRouter(tags=["operations"])


def add_to_server(hooks: ServerHooks) -> None:
    """Count usage, and add the route that reports it."""
    redis = hooks.state.settings.redis
    book = UsageBook(None if redis is None else connect(redis))
    hooks.app.state.usage = book
    hooks.app.include_router(router)
    hooks.state.opener.observers.append(book)
    hooks.state.on_start.append(book.start)


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
    sees_all = state.is_admin(caller.key_id)
    book: UsageBook = request.app.state.usage
    used = await book.read(days)
    rows = [
        _row(state, day, key_id, used[day][key_id])
        for day in sorted(used, reverse=True)
        for key_id in sorted(used[day])
        if sees_all or key_id == caller.key_id
    ]
    return {"data": rows, "since_start": state.settings.redis is None}


def _row(state: ServerState, day: date, key_id: str, used: Used) -> dict[str, Any]:
    name = None if state.access is None else state.access.name_of(key_id)
    return {
        "date": day.isoformat(),
        "key_id": key_id,
        "name": ANONYMOUS if key_id == ANONYMOUS else name,
        "contexts": used.contexts,
        "characters": used.chars,
        "audio_seconds": used.audio_ms / 1000,
    }
