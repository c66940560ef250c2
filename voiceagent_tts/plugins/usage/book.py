"""What each key has used, by day (UTC): contexts, characters, seconds of audio.

Counted in memory; with Redis the counts are moved there within a second or two, where all servers
add to the same numbers and a restart loses none.
"""

import asyncio
import contextlib
import json
import uuid
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Self

from voiceagent_tts.core import samples_to_ms
from voiceagent_tts.plugins.redis.connection import PREFIX, away_errors
from voiceagent_tts.server.admission import Origin
from voiceagent_tts.synthesizer.context import Context
from voiceagent_tts.synthesizer.events import ContextReport

if TYPE_CHECKING:
    from redis.asyncio import Redis

ANONYMOUS = "anonymous"
"""Id of requests to a server without keys."""
MAX_DAYS = 90
"""Days for which usage is kept."""

_MOVE = """
if tonumber(redis.call('GET', KEYS[1]) or 0) >= tonumber(ARGV[1]) then return end
redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[4])
for day, counts in pairs(cjson.decode(ARGV[3])) do
  for field, count in pairs(counts) do redis.call('HINCRBY', day, field, count) end
  redis.call('EXPIRE', day, ARGV[2])
end
"""
"""Adds the counts of one batch, unless this or a later batch of the book was added: a batch whose
answer was lost is sent again."""
_FLUSH_S = 1.0
_NUMBER_KEPT_S = 86_400
"""Time for which Redis remembers the number of a book's last batch."""
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


Days = Mapping[date, Mapping[str, Used]]
"""Use by day and key id."""


@dataclass(frozen=True, slots=True)
class _Batch:
    """Counts that were sent to Redis, which may have added them.

    Attributes:
        number: one more than that of the batch before.
        days: the counts; empty once Redis is known to have them.
    """

    number: int
    days: Days

    def fields(self) -> dict[str, dict[str, str]]:
        """The counts by the names that they have in Redis."""
        return {
            _redis_key(day): {
                f"{name}:{key_id}": str(getattr(used, name))
                for key_id, used in keys.items()
                for name in _FIELDS
            }
            for day, keys in self.days.items()
        }


def today() -> date:
    """The current day, in UTC."""
    return datetime.now(UTC).date()


class UsageBook:
    """Counts the use of keys; closes its connection to Redis with itself."""

    def __init__(self, redis: "Redis | None") -> None:
        self._redis = redis
        self._move_batch = None if redis is None else redis.register_script(_MOVE)
        self._moved_key = f"{PREFIX}:usage:moved:{uuid.uuid4().hex}"
        self._batch = _Batch(0, {})
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
            await self._send_batch()
            stored = await self._stored(wanted)
            for own in (self._batch.days, self._days):
                for day in wanted:
                    _add(stored.setdefault(day, {}), own.get(day, {}))
        return {day: keys for day, keys in stored.items() if keys}

    async def _stored(self, wanted: list[date]) -> dict[date, dict[str, Used]]:
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
            await asyncio.shield(self._move())

    async def start(self) -> None:
        """Begin to move counts to Redis, if there is one."""
        if self._redis is not None:
            self._flushing = asyncio.create_task(self._keep_flushing())

    async def _keep_flushing(self) -> None:
        while True:
            await asyncio.sleep(_FLUSH_S)
            await self.flush()

    async def close(self) -> None:
        """Move the rest of the counts, and close the connection; idempotent."""
        if self._flushing is not None:
            self._flushing.cancel()
            await asyncio.wait({self._flushing})
        await self.flush()
        if self._redis is not None:
            await self._redis.aclose()

    async def _move(self) -> None:
        async with self._moving:
            await self._send_batch()
            if self._days and not self._batch.days:
                self._batch = _Batch(self._batch.number + 1, dict(self._days))
                self._days = defaultdict(_new_day)
                await self._send_batch()

    async def _send_batch(self) -> None:
        """Send the last batch, unless Redis is known to have it; it stays while Redis is away."""
        batch = self._batch
        if self._move_batch is None or not batch.days:
            return
        keep_s = round(timedelta(days=MAX_DAYS + 1).total_seconds())
        arguments = [batch.number, keep_s, json.dumps(batch.fields()), _NUMBER_KEPT_S]
        with contextlib.suppress(*away_errors()):
            await self._move_batch([self._moved_key], arguments)
            self._batch = _Batch(batch.number, {})


def _add(there: dict[str, Used], more: Mapping[str, Used]) -> None:
    for key_id, used in more.items():
        there[key_id] = there.get(key_id, Used()) + used


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
