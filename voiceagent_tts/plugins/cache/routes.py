"""`/v1/cache`: what the cache of phrases holds, phrases for it in advance, and its end."""

from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.plugins.cache.caching_worker import phrases_of
from voiceagent_tts.plugins.cache.store import ContextPhrases, PhraseCache
from voiceagent_tts.protocol.messages import Speed
from voiceagent_tts.seam.commands import SpeechOptions
from voiceagent_tts.server.admission import Origin
from voiceagent_tts.server.auth import caller_of
from voiceagent_tts.server.callers import audit
from voiceagent_tts.server.request_log import request_id_of
from voiceagent_tts.server.state import ServerState, draining_error
from voiceagent_tts.synthesizer.events import ContextFailed
from voiceagent_tts.synthesizer.options import ContextOptions

router = APIRouter(tags=["operations"])

_MAX_PHRASE_CHARS = 1000

_PLACES = (1, 3)
"""Times that the phrase is spoken in one context. Where it stands decides about the silence before
it and the pause after it: alone; and at the beginning, in the middle and at the end."""


class WarmRequest(BaseModel):
    """The body: a phrase, and the options of the contexts that will speak it."""

    model_config = ConfigDict(extra="forbid", strict=True)

    text: Annotated[str, StringConstraints(min_length=1, max_length=_MAX_PHRASE_CHARS)] = Field(
        description="The phrase, as the contexts will write it."
    )
    voice: Annotated[str, StringConstraints(max_length=256)] | None = None
    language: Annotated[str, StringConstraints(max_length=256)] | None = None
    instruct: Annotated[str, StringConstraints(max_length=4096)] | None = None
    speed: Speed = 1.0
    seed: Annotated[int, Field(ge=0, lt=2**53)] | None = None

    def options(self) -> ContextOptions:
        """Options of the contexts that speak the phrase."""
        speech = SpeechOptions(
            instruct=self.instruct, speed=self.speed, seed=self.seed, is_batch=True
        )
        return ContextOptions(
            voice=self.voice,
            language=self.language,
            speech=speech,
            max_lead_s=0,
            text_feeding="segment",
            cache="fill",
        )


@router.get("/v1/cache")
async def show_cache(request: Request) -> dict[str, Any]:
    """Report what the cache holds, and what it has done since the server started."""
    cache = _cache_of(request)
    counts, memory = cache.counts, cache.memory
    rate = counts.hit_rate
    return {
        "phrases": len(memory),
        "bytes": memory.size_bytes,
        "hits": counts.hits,
        "misses": counts.misses,
        "hit_rate": None if rate is None else round(rate, 4),
        "audio_seconds": round(counts.audio_s, 3),
        "stored": counts.stored,
        "evicted": memory.evicted,
        "shared": cache.is_shared,
    }


@router.post("/v1/cache")
async def warm_cache(request: Request, body: WarmRequest) -> dict[str, int]:
    """Speak a phrase and store it, in every variant that a context may need."""
    _cache_of(request)
    stored = cached = 0
    for times in _PLACES:
        if (phrases := await _speak(request, body, times)) is not None:
            stored += phrases.stored
            cached += phrases.cached
    return {"stored": stored, "cached": cached}


@router.delete("/v1/cache")
async def clear_cache(request: Request) -> dict[str, Any]:
    """Drop all phrases, on all servers that share them.

    `shared` is false without a Redis, or while it is away: then other servers keep theirs.
    """
    cache = _cache_of(request)
    phrases = len(cache.memory)
    is_everywhere = await cache.clear()
    caller = caller_of(request.scope)
    audit("cache_cleared", key_id=caller.key_id, ip=caller.ip)
    return {"dropped": phrases, "shared": is_everywhere}


async def _speak(request: Request, body: WarmRequest, times: int) -> ContextPhrases | None:
    """Speak the phrase in one context; return what it has found in the cache and stored there."""
    state: ServerState = request.app.state.server
    if state.is_draining:
        raise draining_error()
    origin = Origin(
        caller_of(request.scope), request.url.path, {"request_id": request_id_of(request.scope)}
    )
    admitted = await state.opener.open(origin, body.options(), chars=times * len(body.text))
    context = admitted.context
    try:
        for number in range(times):
            if number:
                context.flush(number)
            await admitted.push_text(body.text)
        context.finish()
        async for event in context:
            if isinstance(event, ContextFailed):
                raise event.error
        return phrases_of(context)
    finally:
        context.abandon()


def _cache_of(request: Request) -> PhraseCache:
    cache: PhraseCache | None = request.app.state.cache
    if cache is None:
        raise InvalidRequestError(
            "this server has no cache: expected a cache_mb above 0; set VOICEAGENT_TTS_CACHE_MB",
            code=ErrorCode.NOT_SUPPORTED,
        )
    return cache
