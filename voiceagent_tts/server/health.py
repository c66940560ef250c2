"""Whether this server can speak now: found out by speaking.

A listening port proves nothing about an engine that hangs, so readiness rests on real audio that is
not older than `watchdog_s`: somebody's, or that of a probe. The event loop's liveness is the answer
to the request itself.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any

import structlog
from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from voiceagent_tts import __version__
from voiceagent_tts.core import AudioChunk
from voiceagent_tts.errors import VoiceAgentError
from voiceagent_tts.seam.commands import SpeechOptions
from voiceagent_tts.synthesizer.options import ContextOptions
from voiceagent_tts.synthesizer.synthesizer import Synthesizer

_PROBE_TEXT = "ok"
_PROBE_INSTRUCT = "a calm voice"
_PROBE_TIMEOUT_S = 5.0
_FIRST_RETRY_S = 0.5

_log = structlog.get_logger(__name__)


class Watchdog:
    """Speaks a word to nobody, where nobody else is spoken to, to know that the engine works.

    Args:
        synthesizer: who is watched.
        max_age_s: how old the last success may be, and so the longest that one may take.
        sleep: waits so many seconds.
    """

    def __init__(
        self,
        synthesizer: Synthesizer,
        max_age_s: float,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._synthesizer = synthesizer
        self._max_age_s = max_age_s
        self._sleep = sleep
        self._timeout_s = min(_PROBE_TIMEOUT_S, max_age_s)
        self._succeeded_at = -math.inf
        self._last_error: str | None = "no synthesis has run yet"

    @property
    def problem(self) -> str | None:
        """Why the engine may be unable to speak; None where it has spoken of late."""
        age_s = time.monotonic() - self._spoken_at
        if self._last_error is None and age_s > self._max_age_s:
            return f"the last synthesis that succeeded was {age_s:.1f} s ago"
        return self._last_error

    @property
    def is_healthy(self) -> bool:
        """Whether a synthesis has succeeded within `max_age_s`, and none has failed since."""
        return self.problem is None

    async def run(self) -> None:
        """Probe for ever: at a third of the allowed age; soon after a failure, then ever later."""
        period_s = self._max_age_s / 3
        retry_s = min(_FIRST_RETRY_S, period_s)
        while True:
            if self.is_healthy:
                retry_s = min(_FIRST_RETRY_S, period_s)
                await self._sleep(period_s)
            else:
                await self._sleep(retry_s)
                retry_s = min(2 * retry_s, period_s)
            if time.monotonic() - self._synthesizer.audio_at < period_s:
                self._last_error = None  # somebody hears it speak: a probe would only take a row
            else:
                await self.probe()

    @property
    def _spoken_at(self) -> float:
        return max(self._succeeded_at, self._synthesizer.audio_at)

    async def probe(self) -> None:
        """Speak one word and see whether there is sound."""
        error = await self._try()
        if error is None:
            self._succeeded_at = time.monotonic()
        elif error != self._last_error:
            _log.warning("probe_failed", error=error)
        self._last_error = error

    async def _try(self) -> str | None:
        """What is wrong, if anything."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return None if await self._speak() else "the engine made no sound"
        except VoiceAgentError as error:
            return error.message
        except TimeoutError:
            return f"the engine made no sound within {self._timeout_s:g} s"

    async def _speak(self) -> bool:
        # Without a language, so that the language model is loaded before the first caller needs it.
        options = ContextOptions(
            speech=SpeechOptions(instruct=self._instruct()),
            max_lead_s=0,
            wants_words=False,
            is_probe=True,
        )
        context = await self._synthesizer.open(options)
        try:
            context.push_text(_PROBE_TEXT)
            context.finish()
            async for event in context:
                if isinstance(event, AudioChunk):
                    return True
            return False
        finally:
            context.abandon()

    def _instruct(self) -> str | None:
        """What the default voice's engine must be told, if anything."""
        voice = self._synthesizer.voices.resolve(None)
        capabilities = self._synthesizer.supervisors[voice.worker].capabilities
        return _PROBE_INSTRUCT if capabilities.needs_instruct else None


router = APIRouter(tags=["operations"])


@router.get("/health/live")
async def live() -> dict[str, str]:
    """The process answers."""
    return {"status": "alive"}


@router.get("/health/ready")
async def ready(request: Request) -> Response:
    """Whether new contexts may come: the engine has spoken lately and nothing drains."""
    shell = request.app.state.shell
    if shell.is_draining:
        return JSONResponse({"status": "draining"}, 503)
    if (problem := shell.watchdog.problem) is not None:
        return JSONResponse({"status": "unhealthy", "reason": problem}, 503)
    return JSONResponse({"status": "ready"})


@router.get("/health")
async def health(request: Request) -> dict[str, Any]:
    """The server in a few words, for people."""
    shell = request.app.state.shell
    workers = {
        name: {
            "is_running": supervisor.worker is not None,
            "model": supervisor.capabilities.model,
            "rows_used": supervisor.worker.rows_used if supervisor.worker else 0,
            "max_rows": supervisor.capabilities.max_rows,
            "restarts": supervisor.restarts,
        }
        for name, supervisor in shell.synthesizer.supervisors.items()
    }
    return {
        "version": __version__,
        "is_ready": shell.watchdog.is_healthy and not shell.is_draining,
        "is_draining": shell.is_draining,
        "contexts_active": shell.synthesizer.contexts_active,
        "sockets": len(shell.sessions),
        "workers": workers,
    }
