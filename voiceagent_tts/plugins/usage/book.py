"""What each key has used, by day (UTC): contexts, characters, seconds of audio.

Counted in memory; with Redis the counts are moved there within a second or two, where all servers
add to the same numbers and a restart loses none.
"""

import asyncio
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Self

from voiceagent_tts.access.keys import ANONYMOUS
from voiceagent_tts.access.redis_server import PREFIX, away_errors
from voiceagent_tts.core import samples_to_ms
from voiceagent_tts.server.admission import Origin
from voiceagent_tts.synthesizer.context import Context
from voiceagent_tts.synthesizer.events import ContextReport

if TYPE_CHECKING:
    from redis.asyncio import Redis

MAX_DAYS = 90
"""Days for which usage is kept."""

_FLUSH_S = 1.0
_FIELDS = ("contexts", "chars", "audio_ms")


@dataclass(frozen=True, slots=True)
class Used:
    """Use of one key on one day; audio in whole milliseconds, which add up exactly."""

    contexts: int = 0
    chars: int = 0
    audio_ms: int = 0

    def __add__(self, other: Self) -> "Used":
        return Used(
            self.contexts + other.contexts, self.chars + other.chars, self.audio_ms + other.audio_ms
        )


Days = dict[date, dict[str, Used]]
"""Use by day and key id."""


def today() -> date:
    """The current day, in UTC."""
    return datetime.now(UTC).date()


class UsageBook:
    """Counts the use of keys.

    Args:
        redis: where counts are kept; None keeps them in memory.
    """

    def __init__(self, redis: "Redis | None") -> None:
        self._redis = redis
        self._days: defaultdict[date, defaultdict[str, Used]] = defaultdict(_new_day)
        self._flushing: asyncio.Task[None] | None = None
        self._moving = asyncio.Lock()  # counts on their way to Redis are neither here nor there

    def not_opened(self, *_: object) -> None:
        """Count nothing: see `ContextObserver`."""

    def ended(self, origin: Origin, context: Context, report: ContextReport) -> None:
        """Count a context that has ended."""
        audio_ms = samples_to_ms(report.audio_samples)
        self.add(origin.caller.key_id or ANONYMOUS, Used(1, report.said_chars, audio_ms))

    def add(self, key_id: str, used: Used) -> None:
        """Count the use of one context."""
        day = self._days[today()]
        day[key_id] += used
        self._forget()

    def _forget(self) -> None:
        oldest = today() - timedelta(days=MAX_DAYS)
        for day in [day for day in self._days if day <= oldest]:
            del self._days[day]

    async def read(self, days: int) -> Days:
        """Return the use of the last `days` days, today included.

        If Redis is away, this has only what was not moved there yet.
        """
        wanted = [today() - timedelta(days=back) for back in range(days)]
        async with self._moving:
            stored = await self._stored(wanted)
            for day in wanted:
                for key_id, used in self._days.get(day, {}).items():
                    there = stored.setdefault(day, {})
                    there[key_id] = there.get(key_id, Used()) + used
        return stored

    async def _stored(self, wanted: list[date]) -> Days:
        if self._redis is None:
            return {}
        async with self._redis.pipeline(transaction=False) as pipe:
            for day in wanted:
                pipe.hgetall(_redis_key(day))
            try:
                answers = await pipe.execute()
            except away_errors():
                return {}
        return {day: _parsed(fields) for day, fields in zip(wanted, answers, strict=True) if fields}

    async def flush(self) -> None:
        """Move the counts to Redis; they stay here while it is away."""
        if self._redis is not None:
            # A caller that is cancelled cannot know whether Redis has counted; so moving goes on.
            await asyncio.shield(self._move(self._redis))

    async def start(self) -> None:
        """Begin to move counts to Redis, if there is one."""
        if self._redis is not None:
            self._flushing = asyncio.create_task(self._keep_flushing())

    async def _keep_flushing(self) -> None:
        while True:
            await asyncio.sleep(_FLUSH_S)
            await self.flush()

    async def close(self) -> None:
        """Move the rest of the counts; idempotent."""
        if self._flushing is not None:
            self._flushing.cancel()
            await asyncio.wait({self._flushing})
        await self.flush()

    async def _move(self, redis: "Redis") -> None:
        async with self._moving:
            if self._days:
                await self._move_days(redis)

    async def _move_days(self, redis: "Redis") -> None:
        moving, self._days = self._days, defaultdict(_new_day)
        try:
            async with redis.pipeline(transaction=True) as pipe:
                for day, keys in moving.items():
                    for key_id, used in keys.items():
                        for name in _FIELDS:
                            pipe.hincrby(_redis_key(day), f"{name}:{key_id}", getattr(used, name))
                    pipe.expire(_redis_key(day), timedelta(days=MAX_DAYS + 1))
                await pipe.execute()
        except away_errors():
            for day, keys in moving.items():
                for key_id, used in keys.items():
                    self._days[day][key_id] += used


def _new_day() -> defaultdict[str, Used]:
    return defaultdict(Used)


def _redis_key(day: date) -> str:
    return f"{PREFIX}:usage:{day.isoformat()}"


def _parsed(fields: dict[bytes, bytes]) -> dict[str, Used]:
    keys: defaultdict[str, Used] = _new_day()
    for field, number in fields.items():
        name, _, key_id = field.decode().partition(":")
        if name in _FIELDS:
            keys[key_id] += Used(**{name: int(number)})
    return dict(keys)
