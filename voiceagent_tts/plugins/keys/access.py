"""Keys and limits of a server whose settings name some; other servers do not load this module."""

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from starlette.datastructures import Headers
from starlette.types import Scope as AsgiScope

from voiceagent_tts.clones import VoiceFolder
from voiceagent_tts.config import Settings
from voiceagent_tts.errors import ErrorCode, UnauthorizedError
from voiceagent_tts.plugins.clones.voice_records import Viewer, VoiceRecords
from voiceagent_tts.plugins.keys.key_store import KeyChange, KeyRing
from voiceagent_tts.plugins.keys.keys import Key, Scope
from voiceagent_tts.server.access import Access
from voiceagent_tts.server.callers import Caller, audit
from voiceagent_tts.server.metrics import Metrics

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from voiceagent_tts.plugins.keys.limiter import Admission, Limiter

_REFRESH_S = 1.0
"""Time between two readings of the keys; docs/keys.md promises two seconds."""
_BEARER_SUBPROTOCOL = "bearer."
_SCHEMES = ("bearer", "api-key")  # the second is Baseten's
_ANY_SCOPE = ("/v1/usage", "/openapi.json")
"""Paths that every key may read; `/v1/usage` shows a key its own usage."""

OnEnd = Callable[[Mapping[str, UnauthorizedError]], None]
"""Called with the ids of keys that may not speak any more, and the reasons."""


def access_of(settings: Settings, metrics: Metrics, on_end: OnEnd) -> Access:
    """The keys and limits of a server, with their gauges; see `voiceagent_tts.hooks`.

    Raises:
        InvalidRequestError: the address of a Redis cannot be read.
    """
    access = KeysAndLimits(settings, on_end)
    metrics.keys.set_function(lambda: len(access.keys))
    metrics.keys_stale.set_function(lambda: access.keys.problem is not None)
    metrics.limits_shared.set_function(
        lambda: access.limiter is not None and access.limiter.is_shared
    )
    return access


class KeysAndLimits:
    """Checks keys and their scopes, and admits contexts; errors are as for `Access`.

    Attributes:
        keys: the keys; none are needed where the settings have only limits.
        limiter: limits contexts; None where no setting limits any.
    """

    def __init__(self, settings: Settings, on_end: OnEnd) -> None:
        self._settings = settings
        self._on_end = on_end
        self.keys = KeyRing(settings, self._note_key_change)
        self._clones = VoiceRecords(VoiceFolder(settings.clones_folder))
        self._redis = _redis_of(settings)
        self.limiter = _limiter_of(settings, self.keys, self._redis)
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def key_ids(self) -> list[str]:
        """The ids of all keys."""
        return self.keys.ids

    async def start(self) -> None:
        """Read the keys, and watch them."""
        await self.keys.start()
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
        self._on_end(_errors_of(change))

    async def close(self) -> None:
        """Finish what is being counted."""
        for task in self._tasks:
            task.cancel()
            await asyncio.wait({task})
        if self.limiter is not None:
            await self.limiter.close()
        await self.keys.close()
        if self._redis is not None:
            await self._redis.aclose()

    def key_id_of(self, request: AsgiScope, query_key: str | None) -> str | None:
        """The id of the key that a client has sent; None on a server without keys."""
        if not self._settings.needs_key:
            return None
        offered = _key_of(request) or query_key
        key = self.keys.find(offered or "")
        if offered is None or key is None:
            raise UnauthorizedError(
                "expected an API key: `Authorization: Bearer KEY`, `X-API-Key: KEY`, or the "
                "WebSocket subprotocol `bearer.KEY`"
            )
        return key.id

    def lacks_key(self, request: AsgiScope) -> bool:
        """Whether a request needs a key and has none in its headers."""
        return self._settings.needs_key and _key_of(request) is None

    def check_scope(self, key_id: str | None, method: str, path: str) -> None:
        """Refuse a request whose key may not use a route."""
        if key_id is None or not self._settings.needs_key:
            return
        key = self.keys.get(key_id)
        if key is None:
            raise UnauthorizedError("this key was revoked")
        needed = scope_of(method, path)
        if needed is not None and needed not in key.scopes:
            raise _scope_error(key, needed)

    def is_admin(self, key_id: str) -> bool:
        """Whether a key may see and do everything; False for one that was revoked."""
        key = self.keys.get(key_id)
        return key is not None and key.is_admin

    def name_of(self, key_id: str) -> str | None:
        """What a key is for; None for one that was revoked."""
        key = self.keys.get(key_id)
        return None if key is None else key.name

    def clone_filter(self, key_id: str) -> Callable[[str], bool]:
        """Return what passes the files of clones of a key and of everyone; for an admin, of all."""
        viewer = Viewer(key_id, self.is_admin(key_id))
        return lambda stored: self._clones.is_seen(stored, viewer)

    async def admit(self, caller: Caller, chars: int) -> "Admission | None":
        """Admit a context as `Limiter.admit` does; None where no setting limits any."""
        return None if self.limiter is None else await self.limiter.admit(caller, chars)

    def sees_callers(self, request: AsgiScope) -> bool:
        """Whether a request that needs no key may learn what all callers do: that of an admin."""
        key = self.keys.find(_key_of(request) or "")
        return not self._settings.needs_key or (key is not None and key.is_admin)


def _redis_of(settings: Settings) -> "Redis | None":
    if settings.redis is None:
        return None
    from voiceagent_tts.plugins.redis.connection import connect

    return connect(settings.redis)


def _limiter_of(settings: Settings, keys: KeyRing, redis: "Redis | None") -> "Limiter | None":
    general = settings.key_limits.given or settings.ip_limits.given
    if not general and settings.keys is None and redis is None:
        return None
    from voiceagent_tts.plugins.keys.limiter import Limiter, RedisLimits

    return Limiter(settings, keys, None if redis is None else RedisLimits(redis))


def _described(key: Key) -> dict[str, Any]:
    return {
        "key_id": key.id,
        "name": key.name,
        "scopes": key.listed_scopes,
        "limits": key.limits.given,
    }


def _errors_of(change: KeyChange) -> dict[str, UnauthorizedError]:
    """The errors of the keys that were revoked or lost the scope `speak`, by their ids."""
    silent = [key for key in change.changed if Scope.SPEAK not in key.scopes]
    errors = {key.id: UnauthorizedError("this key was revoked") for key in change.removed}
    return errors | {key.id: _scope_error(key, Scope.SPEAK) for key in silent}


def scope_of(method: str, path: str) -> Scope | None:
    """Return the scope that a route needs; None if any key will do.

    Paths that are not named here need `speak`, also those that do not exist.
    """
    if path in ("/metrics", "/v1/cache"):
        return Scope.ADMIN
    if path.startswith("/v1/audio/voice") and (method, path) != ("GET", "/v1/audio/voices"):
        return Scope.VOICES_WRITE
    return None if path in _ANY_SCOPE else Scope.SPEAK


def _scope_error(key: Key, needed: Scope) -> UnauthorizedError:
    return UnauthorizedError(
        f"expected a key with the scope {needed}, got one with {', '.join(key.listed_scopes)}; "
        f"make one with `voiceagent-tts keys create NAME --scope {needed}`",
        code=ErrorCode.FORBIDDEN,
    )


def _key_of(request: AsgiScope) -> str | None:
    headers = Headers(scope=request)
    scheme, _, key = headers.get("authorization", "").partition(" ")
    if scheme.lower() in _SCHEMES:
        return key.strip()
    if key := headers.get("x-api-key") or headers.get("xi-api-key"):
        return key
    for subprotocol in request.get("subprotocols", ()):
        if subprotocol.startswith(_BEARER_SUBPROTOCOL):
            return subprotocol.removeprefix(_BEARER_SUBPROTOCOL)
    return None
