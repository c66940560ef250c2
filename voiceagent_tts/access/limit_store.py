"""Where limits are counted: in the memory of one server, or in Redis, for all servers.

Rates are windows of `limits`: a window begins with its first use and ends after its length, and
use beyond the limit is counted too. The contexts that a subject has open are leases in a sorted
set, which expire unless their server renews them, so that a server that dies gives them back.
"""

import math
import time
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Protocol

from limits import RateLimitItem
from limits.aio.storage import MemoryStorage, RedisStorage, Storage
from limits.aio.strategies import FixedWindowRateLimiter

from voiceagent_tts.access.redis_server import PREFIX

if TYPE_CHECKING:
    from redis.asyncio import Redis

LEASE_S = 30.0
"""Time after which an open context of a server that has died no longer counts."""

_ACQUIRE = """
local time = redis.call('TIME')
local now = time[1] + time[2] / 1e6
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[1]) then return 0 end
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[3])
redis.call('EXPIRE', KEYS[1], math.ceil(ARGV[2]) + 1)
return 1
"""
# Redis's own clock: those of the servers may differ.
_RENEW = """
local time = redis.call('TIME')
local expiry = time[1] + time[2] / 1e6 + ARGV[1]
for i = 2, #ARGV do redis.call('ZADD', KEYS[1], expiry, ARGV[i]) end
redis.call('EXPIRE', KEYS[1], math.ceil(ARGV[1]) + 1)
"""

Lease = tuple[str, str]
"""A subject, and the id of an open context of it."""
Leases = Mapping[str, set[str]]
"""The ids of the open contexts of each subject."""


class LimitStore(Protocol):
    """Counts what subjects use. A subject is a key or an address, by name."""

    async def count(self, item: RateLimitItem, subject: str, cost: int) -> bool:
        """Count use in the current window; return whether the window had room for it."""
        ...

    async def has_room(self, item: RateLimitItem, subject: str, cost: int) -> bool:
        """Return whether the current window has room for `cost` more."""
        ...

    async def reset_s(self, item: RateLimitItem, subject: str) -> float:
        """Return the seconds to the end of the current window."""
        ...

    async def acquire(self, subject: str, lease: str, most: int) -> bool:
        """Add a lease unless the subject has `most`; return whether it was added."""
        ...


class _Windows:
    """The rates of either store."""

    def __init__(self, storage: Storage) -> None:
        self._limiter = FixedWindowRateLimiter(storage)

    async def count(self, item: RateLimitItem, subject: str, cost: int) -> bool:
        """Count use; arguments as for `LimitStore`."""
        return await self._limiter.hit(item, subject, cost=cost)

    async def has_room(self, item: RateLimitItem, subject: str, cost: int) -> bool:
        """Look without counting; arguments as for `LimitStore`."""
        return await self._limiter.test(item, subject, cost=cost)

    async def reset_s(self, item: RateLimitItem, subject: str) -> float:
        """Seconds to the end of the window; arguments as for `LimitStore`."""
        stats = await self._limiter.get_window_stats(item, subject)
        return max(0.0, stats.reset_time - time.time())


class MemoryLimits(_Windows):
    """Limits of one server.

    Args:
        leases: the leases of this server, which its owner keeps.
    """

    def __init__(self, leases: Leases) -> None:
        super().__init__(MemoryStorage())
        self._leases = leases

    async def acquire(self, subject: str, lease: str, most: int) -> bool:
        """Return whether the subject may have one more lease; the owner adds it."""
        return len(self._leases.get(subject, ())) < most


class RedisLimits(_Windows):
    """Limits that all servers of one Redis server share."""

    def __init__(self, redis: "Redis") -> None:
        super().__init__(
            RedisStorage(
                "async+redis://",
                implementation="redispy",
                key_prefix=f"{PREFIX}:limits",
                connection_pool=redis.connection_pool,  # pyright: ignore[reportArgumentType]
            )
        )
        self._redis = redis
        self._acquire = redis.register_script(_ACQUIRE)
        self._renew = redis.register_script(_RENEW)
        self._sent: set[Lease] = set()
        """Leases that Redis may have, as its answer may have been lost."""

    async def acquire(self, subject: str, lease: str, most: int) -> bool:
        """Add a lease unless the servers have `most` together."""
        self._sent.add((subject, lease))
        return bool(await self._acquire([_leases_key(subject)], [most, LEASE_S, lease]))

    def may_have(self, lease: Lease) -> bool:
        """Whether a lease was sent to Redis, and is not known to be removed."""
        return lease in self._sent

    async def release(self, leases: Collection[Lease]) -> None:
        """Remove leases, in one round trip."""
        async with self._redis.pipeline(transaction=False) as pipeline:
            for subject, lease in leases:
                pipeline.zrem(_leases_key(subject), lease)
            await pipeline.execute()
        self._sent.difference_update(leases)

    async def renew(self, leases: Leases) -> None:
        """Renew the leases of this server, also those that Redis has lost.

        Raises:
            RedisError: Redis is away, or does not write.
        """
        await self._redis.set(f"{PREFIX}:limits:written", 1, ex=math.ceil(LEASE_S))
        for subject, ids in list(leases.items()):
            if renewed := list(ids):
                self._sent.update((subject, each) for each in renewed)
                await self._renew([_leases_key(subject)], [LEASE_S, *renewed])
                # Those that have ended meanwhile may have come back.
                if ended := set(renewed) - leases.get(subject, set()):
                    await self._redis.zrem(_leases_key(subject), *ended)


def _leases_key(subject: str) -> str:
    return f"{PREFIX}:contexts:{subject}"
