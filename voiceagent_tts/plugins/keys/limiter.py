"""Limits of API keys and client addresses, checked when a context opens and when it gets text.

Nothing is checked for each frame. Text is counted in blocks of at most 256 characters, so that the
tokens of a language model do not ask Redis one by one; a context may exceed a limit by less than a
block. Audio is counted when its context has ended.

Uses are counted in the memory of one server, or in Redis, for all servers. Rates are windows of
`limits`: a window begins with its first use and ends after its length, and use beyond the limit is
counted too. The contexts that a subject has open are leases in a sorted set, which expire unless
their server renews them, so that a server that dies gives them back.
"""

import asyncio
import contextlib
import itertools
import math
import time
import uuid
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

import structlog
from limits import (
    RateLimitItem,
    RateLimitItemPerDay,
    RateLimitItemPerMinute,
    RateLimitItemPerSecond,
)
from limits.aio.storage import MemoryStorage, RedisStorage, Storage
from limits.aio.strategies import FixedWindowRateLimiter

from voiceagent_tts.errors import (
    ErrorCode,
    InvalidRequestError,
    OverloadedError,
    UnauthorizedError,
    VoiceAgentError,
)
from voiceagent_tts.plugins.keys.key_store import KeyRing
from voiceagent_tts.plugins.redis.connection import PREFIX, away_errors
from voiceagent_tts.server.callers import Caller, network_of
from voiceagent_tts.settings.access import AccessSettings, Quota

if TYPE_CHECKING:
    from redis.asyncio import Redis

_T = TypeVar("_T")

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

_BLOCK_CHARS = 256
_RENEW_S = LEASE_S / 3
_RETRY_S = 0.5
_MAX_RELEASED = 1000  # leases in one command, which a busy Redis must answer in time
_FREEING_S = 1.0
"""Longest wait for the row of a context that is ending, so that the turn after a barge-in opens."""
_BUSY_RETRY_S = 1.0  # suggested to a client with too many contexts, whose ends are not known

_log = structlog.get_logger(__name__)


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


@dataclass(frozen=True, slots=True)
class _Subject:
    """A key or an address with limits."""

    kind: Literal["key", "address"]
    name: str
    quota: Quota

    @property
    def starts(self) -> RateLimitItem | None:
        return _item(RateLimitItemPerSecond, self.quota.contexts_per_s, "contexts")

    @property
    def chars(self) -> RateLimitItem | None:
        return _item(RateLimitItemPerMinute, self.quota.chars_per_minute, "chars")

    @property
    def audio(self) -> RateLimitItem | None:
        return _item(RateLimitItemPerDay, self.quota.audio_s_per_day, "audio")


def _item(kind: type[RateLimitItem], most: int | None, name: str) -> RateLimitItem | None:
    return None if most is None else kind(most, namespace=name)


class Admission:
    """The permission of one context; see `voiceagent_tts.server.access`."""

    def __init__(self, limiter: "Limiter", subjects: list[_Subject]) -> None:
        self.lease = uuid.uuid4().hex
        self.subjects = subjects
        self._limiter = limiter
        self._uncharged_chars = 0
        quarters = [each.chars.amount // 4 for each in subjects if each.chars is not None]
        self._block_chars = min([_BLOCK_CHARS, *quarters])
        self._is_over = self._is_row_free = False

    async def charge(self, chars: int) -> None:
        """Charge text before it is spoken."""
        if not self.defer_charge(chars):
            earlier_chars, self._uncharged_chars = self._uncharged_chars, 0
            try:
                await self._limiter.charge_chars(self.subjects, chars, earlier_chars)
            except BaseException:
                self._uncharged_chars += earlier_chars
                raise

    def defer_charge(self, chars: int) -> bool:
        """Note text that is charged with later text; return False if it must be charged first."""
        if not self.subjects:
            return True
        if self._uncharged_chars + chars >= self._block_chars:
            return False
        self._uncharged_chars += chars
        return True

    def charge_in_background(
        self, chars: int, on_refusal: Callable[[VoiceAgentError], None]
    ) -> None:
        """Charge text that is already being spoken, without waiting."""

        async def charge() -> None:
            try:
                await self.charge(chars)
            except VoiceAgentError as error:
                on_refusal(error)

        if not self.defer_charge(chars):
            self._limiter.spawn(charge())

    def end(self, audio_s: float = 0.0, *, has_row: bool = False) -> None:
        """Charge the audio and the rest of the text, and end the context's lease; idempotent."""
        if self.subjects and not self._is_over:
            self._is_over = True
            self._limiter.settle(self, self._uncharged_chars, math.ceil(audio_s))
            if has_row and not self._is_row_free:
                self._limiter.expect_release(self)
            else:
                self._limiter.release(self)

    def free_row(self) -> None:
        """Note that the context occupies no row of a worker any more; idempotent."""
        if self.subjects and not self._is_row_free:
            self._is_row_free = True
            if self._is_over:
                self._limiter.release(self)


class Limiter:
    """Admits contexts within the limits of their key and their address.

    Args:
        shared: the store that servers share; None to count in this server only.
    """

    def __init__(self, settings: AccessSettings, keys: KeyRing, shared: RedisLimits | None) -> None:
        self._settings = settings
        self._keys = keys
        self._leases: dict[str, set[str]] = {}
        self._local = MemoryLimits(self._leases)
        self._limits_addresses = bool(settings.ip_limits.given)
        self._shared = shared
        self.is_shared = shared is not None
        """Whether limits are counted in Redis now."""
        self._lost = asyncio.Event()
        self._unreleased: set[Lease] = set()
        """Leases that Redis may still have, of contexts that are over."""
        self._ending: dict[str, set[str]] = {}
        """Subjects of each lease whose context is over and whose row is not free yet."""
        self._freed = asyncio.Event()
        self._releases = 0
        self._settling: set[asyncio.Task[None]] = set()

    async def admit(self, caller: Caller, chars: int = 1) -> Admission:
        """Admit one context; arguments and errors as for `Access`."""
        admission = Admission(self, self._subjects_of(caller))
        if not admission.subjects:
            return admission
        # Together, so that a key and an address cost no more than one of them.
        admitting = [self._admit(each, admission.lease, chars) for each in admission.subjects]
        checks = asyncio.gather(*admitting, return_exceptions=True)
        refusals: list[BaseException] = []
        try:
            refusals += filter(None, await asyncio.shield(checks))
            if refusals:
                admission.end()
                raise max(refusals, key=_retry_after_ms)
        except asyncio.CancelledError:
            self.spawn(_end_after(checks, admission))
            raise
        finally:
            # A refusal names this frame, and would with its caller be garbage if this named it.
            del checks, refusals
        return admission

    def _subjects_of(self, caller: Caller) -> list[_Subject]:
        """The caller's key and address, if they have limits."""
        subjects: list[_Subject] = []
        if caller.key_id is not None:
            key = self._keys.get(caller.key_id)
            if key is None:
                raise UnauthorizedError("this key was revoked")
            quota = key.limits.over(self._settings.key_limits)
            if quota.given:
                subjects.append(_Subject("key", f"key:{key.id}", quota))
        if self._limits_addresses:
            ip_limits = self._settings.ip_limits
            subjects.append(_Subject("address", f"ip:{network_of(caller.ip)}", ip_limits))
        return subjects

    async def _admit(self, subject: _Subject, lease: str, chars: int) -> None:
        await self._acquire(subject, lease)
        if (starts := subject.starts) is not None and not await self._ask(
            lambda store: store.count(starts, subject.name, 1)
        ):
            raise await self._refusal(subject, starts, "new contexts per second")
        await self._check_chars(subject, chars)
        if (audio := subject.audio) is not None and not await self._ask(
            lambda store: store.has_room(audio, subject.name, 1)
        ):
            raise await self._refusal(subject, audio, "seconds of audio per day")

    async def _acquire(self, subject: _Subject, lease: str) -> None:
        most = subject.quota.contexts
        if most is None:
            return
        deadline, seen = asyncio.get_running_loop().time() + _FREEING_S, self._releases
        while not await self._ask(lambda store: store.acquire(subject.name, lease, most)):
            if not await self._has_freed(subject.name, seen, deadline):
                raise _refused(subject, most, "open contexts", _BUSY_RETRY_S)
            seen = self._releases
        self._leases.setdefault(subject.name, set()).add(lease)

    async def _has_freed(self, subject: str, seen: int, deadline: float) -> bool:
        """Wait for a context that is over to give its lease back; False if none will in time.

        Args:
            subject: whose lease.
            seen: `_releases` when it was asked for: one since then may have made room.
            deadline: when to give up.
        """
        if self._releases > seen:
            return True
        if not any(subject in subjects for subjects in self._ending.values()):
            return False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                await self._freed.wait()
                return True
        return False

    async def charge_chars(self, subjects: list[_Subject], chars: int, earlier_chars: int) -> None:
        """Charge text, and text that was accepted earlier, to all subjects or to none of them."""
        for subject in subjects:
            await self._check_chars(subject, chars, earlier_chars)
        for subject in subjects:
            await self._count(subject.chars, subject.name, chars + earlier_chars)

    async def _check_chars(self, subject: _Subject, chars: int, earlier_chars: int = 0) -> None:
        item = subject.chars
        if item is None:
            return
        if chars > item.amount:  # waiting would not help
            raise InvalidRequestError(
                f"expected at most {item.amount} characters at once, which is the limit of this "
                f"{subject.kind} per minute, got {chars}; send the text in parts",
                code=ErrorCode.TEXT_TOO_LONG,
            )
        cost = min(chars + earlier_chars, item.amount)
        if not await self._ask(lambda store: store.has_room(item, subject.name, cost)):
            raise await self._refusal(subject, item, "characters per minute")

    async def _count(self, item: RateLimitItem | None, subject: str, cost: int) -> None:
        if item is not None and cost > 0:
            await self._ask(lambda store: store.count(item, subject, cost))

    async def _refusal(self, subject: _Subject, item: RateLimitItem, what: str) -> OverloadedError:
        wait_s = await self._ask(lambda store: store.reset_s(item, subject.name))
        return _refused(subject, item.amount, what, wait_s)

    def settle(self, admission: Admission, chars: int, audio_s: int) -> None:
        """Charge what a context has used, in the background."""
        self.spawn(self._settle(admission, chars, audio_s))

    async def _settle(self, admission: Admission, chars: int, audio_s: int) -> None:
        with contextlib.suppress(OverloadedError):  # Redis is away, and nothing is counted
            for subject in admission.subjects:
                await self._count(subject.chars, subject.name, chars)
                await self._count(subject.audio, subject.name, audio_s)

    def expect_release(self, admission: Admission) -> None:
        """Note that a context is over, and that its leases end when its row is free."""
        self._ending[admission.lease] = {each.name for each in admission.subjects}

    def release(self, admission: Admission) -> None:
        """End the leases of a context, in the background."""
        for subject in admission.subjects:
            leases = self._leases.get(subject.name, set())
            leases.discard(admission.lease)
            if not leases:
                self._leases.pop(subject.name, None)
        self.spawn(self._release(admission))

    async def _release(self, admission: Admission) -> None:
        if self._shared is not None:
            leases = {(subject.name, admission.lease) for subject in admission.subjects}
            self._unreleased |= set(filter(self._shared.may_have, leases))
            if self.is_shared:
                try:
                    await self._release_all(self._shared)
                except away_errors() as error:
                    self._lose(error)
        self._ending.pop(admission.lease, None)
        self._releases += 1
        self._freed.set()
        self._freed.clear()

    async def _release_all(self, shared: RedisLimits) -> None:
        """Give back the leases in Redis of contexts that are over, also those that failed.

        Never in the local store instead: Redis would refuse contexts for leases that have no owner.
        """
        while self._unreleased:
            leases = set(itertools.islice(self._unreleased, _MAX_RELEASED))
            await shared.release(leases)
            self._unreleased -= leases

    def spawn(self, settling: Coroutine[Any, Any, None]) -> None:
        """Settle something in the background; `close` waits for it."""
        task = asyncio.create_task(settling)
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    # Redis, and what happens without it.

    async def _ask(self, question: Callable[[LimitStore], Awaitable[_T]]) -> _T:
        """Ask the shared store, or without it the local one."""
        if self._shared is not None and self.is_shared:
            try:
                return await question(self._shared)
            except away_errors() as error:
                self._lose(error)
        if self._shared is not None and self._settings.without_redis == "refuse":
            raise OverloadedError(
                "the limits of this key cannot be checked now: Redis is away",
                retry_after_ms=round(2000 * _RETRY_S),
            )
        return await question(self._local)

    def _lose(self, error: Exception) -> None:
        if self.is_shared:
            self.is_shared = False
            _log.error(
                "redis_away", error=type(error).__name__, contexts=self._settings.without_redis
            )
            self._lost.set()

    async def run(self) -> None:
        """Renew the leases of open contexts, and find out when Redis is back."""
        while self._shared is not None:
            self._lost.clear()
            try:
                await self._shared.renew(self._leases)
                await self._release_all(self._shared)
            except away_errors() as error:
                self._lose(error)
                await asyncio.sleep(_RETRY_S)
                continue
            if not self.is_shared:
                self.is_shared = True
                _log.info("redis_back", contexts=sum(map(len, self._leases.values())))
            # Not `asyncio.wait_for`, which in Python 3.11 may ignore that this task is cancelled.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_RENEW_S):
                    await self._lost.wait()

    async def close(self) -> None:
        """Finish what is being settled."""
        while self._settling:
            await asyncio.wait(set(self._settling))


async def _end_after(checks: Awaitable[object], admission: Admission) -> None:
    """End an admission once its lease has reached the store: a release that comes first is lost."""
    await checks
    admission.end()


def _refused(subject: _Subject, most: int, what: str, wait_s: float) -> OverloadedError:
    shown_s = max(1, math.ceil(10 * wait_s)) / 10  # never "in 0.0 s"
    return OverloadedError(
        f"this {subject.kind} has used its limit of {most} {what}; try again in {shown_s:.1f} s",
        code=ErrorCode.RATE_LIMITED,
        retry_after_ms=max(1, math.ceil(1000 * wait_s)),
    )


def _retry_after_ms(error: BaseException) -> float:
    """How long to wait because of an error; a bug comes before all refusals."""
    return (error.retry_after_ms or 0) if isinstance(error, OverloadedError) else math.inf
