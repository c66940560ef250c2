"""The parts of access control that a server runs: keys and limits."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import structlog

from voiceagent_tts import __version__
from voiceagent_tts.access.key_ring import KeyChange, KeyRing
from voiceagent_tts.access.keys import Key
from voiceagent_tts.config import Settings

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from voiceagent_tts.access.limiter import Limiter

_REFRESH_S = 1.0
"""Time between two readings of the keys; docs/keys.md promises two seconds."""

_log = structlog.get_logger(__name__)


def audit(event: str, **fields: Any) -> None:
    """Log who changed keys, voices or the cache: a line of the log with `audit: true`."""
    _log.info(event, audit=True, **fields)


def _limiter_of(settings: Settings, keys: KeyRing, redis: "Redis | None") -> "Limiter | None":
    """What limits contexts; None where no setting limits any."""
    general = settings.key_limits.given or settings.ip_limits.given
    if not general and settings.keys is None and redis is None:
        return None
    from voiceagent_tts.access.limit_store import RedisLimits
    from voiceagent_tts.access.limiter import Limiter

    return Limiter(settings, keys, None if redis is None else RedisLimits(redis))


def _redis_of(settings: Settings) -> "Redis | None":
    if settings.redis is None:
        return None
    from voiceagent_tts.access.redis_server import connect

    return connect(settings.redis)


class Access:
    """Starts and ends access control."""

    def __init__(self, settings: Settings, on_key_change: Callable[[KeyChange], None]) -> None:
        self._settings = settings
        self._on_key_change = on_key_change
        self.keys = KeyRing(settings, self._note_key_change)
        self.redis = _redis_of(settings)
        """What servers share; None for a server of its own."""
        self.limiter = _limiter_of(settings, self.keys, self.redis)
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Read the keys, and watch them."""
        await self.keys.start()
        audit(
            "server_started",
            version=__version__,
            keys=self.keys.ids,
            key_limits=self._settings.key_limits.given,
            ip_limits=self._settings.ip_limits.given,
        )
        if self.limiter is not None:
            self._tasks.append(asyncio.create_task(self.limiter.run()))
        if self._settings.keys:
            self._tasks.append(asyncio.create_task(self._keep_fresh()))

    async def _keep_fresh(self) -> None:
        while True:
            await asyncio.sleep(_REFRESH_S)
            await self.keys.reload()

    def _note_key_change(self, change: KeyChange) -> None:
        for event, keys in (
            ("key_added", change.added),
            ("key_removed", change.removed),
            ("key_changed", change.changed),
        ):
            for key in keys:
                audit(event, **_described(key))
        self._on_key_change(change)

    async def close(self) -> None:
        """Finish what is being counted."""
        for task in self._tasks:
            task.cancel()
            await asyncio.wait({task})
        if self.limiter is not None:
            await self.limiter.close()
        await self.keys.close()
        if self.redis is not None:
            await self.redis.aclose()


def _described(key: Key) -> dict[str, Any]:
    return {
        "key_id": key.id,
        "name": key.name,
        "scopes": key.listed_scopes,
        "limits": key.limits.given,
    }
