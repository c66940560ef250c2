"""Phrases that several servers share through Redis.

Redis is never asked while a context waits. Each server writes what it stores, and copies what the
others have stored into its memory, in the background, once a second. So a Redis that is away costs
nothing but the sharing.
"""

import hashlib
import secrets
from collections import Counter, deque
from collections.abc import Awaitable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import structlog

from voiceagent_tts.plugins.cache.phrases import Phrase, PhraseVoice
from voiceagent_tts.plugins.redis.connection import PREFIX, away_errors, is_full

if TYPE_CHECKING:
    from redis.asyncio import Redis

_EPOCH = f"{PREFIX}:cache:epoch"
"""A random value that tells an emptied Redis from the one before."""
_CLEARED = f"{PREFIX}:cache:cleared"
_NEXT = f"{PREFIX}:cache:next"
_INDEX = f"{PREFIX}:cache:index"
_PHRASE = f"{PREFIX}:cache:phrase:"
_VOICE_TAG_CHARS = _OWNER_TAG_CHARS = 16
_MOST_WAITING = 256
_MOST_AT_ONCE = 16
_MOST_READ_BYTES = 32e6
"""Read in one round: Redis may keep far more than this server has memory for."""

_STORE = """
local prefix, digest, phrase, tag = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local ttl_ms, max_bytes, voice_chars = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
if #phrase > max_bytes then return 0 end
local total, sizes, members = 0, {}, {}
local function count(member)
  local size, tag, other = string.match(member, '^(%d+):(%x+):(.*)$')
  local owner = string.sub(tag, voice_chars + 1)
  sizes[owner] = (sizes[owner] or 0) + size
  members[owner] = members[owner] or {first = 1}
  table.insert(members[owner], {size = tonumber(size), digest = other, member = member})
  total = total + size
end
for _, member in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  local other = string.match(member, '([^:]*)$')
  if other == digest or redis.call('EXISTS', prefix .. other) == 0 then
    redis.call('ZREM', KEYS[1], member)
  else
    count(member)
  end
end
local new = #phrase .. ':' .. tag .. ':' .. digest
redis.call('SET', prefix .. digest, phrase, 'PX', ttl_ms)
redis.call('ZADD', KEYS[1], redis.call('INCR', KEYS[2]), new)
count(new)
while total > max_bytes do
  local largest
  for owner, size in pairs(sizes) do
    if not largest or size > sizes[largest] then largest = owner end
  end
  local oldest = members[largest][members[largest].first]
  members[largest].first = members[largest].first + 1
  redis.call('DEL', prefix .. oldest.digest)
  redis.call('ZREM', KEYS[1], oldest.member)
  sizes[largest] = sizes[largest] - oldest.size
  total = total - oldest.size
end
return 1
"""
"""Stores a phrase as the newest one; drops expired ones and, beyond the size, the oldest one of the
owner with the most bytes."""

_DROP = """
local dropped = {}
for i = 2, #ARGV do dropped[ARGV[i]] = true end
for _, member in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  local voice, digest = string.match(member, '^%d+:(%x+):(.*)$')
  if #ARGV == 1 or dropped[voice] then
    redis.call('DEL', ARGV[1] .. digest)
    redis.call('ZREM', KEYS[1], member)
  end
end
if #ARGV == 1 then return redis.call('INCR', KEYS[2]) end
"""
"""Deletes the phrases of some voices; without a voice all phrases, and counts that."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SharedPhrase:
    """A phrase of another server, and its remaining lifetime."""

    digest: str
    phrase: Phrase
    ttl_s: float


@dataclass(frozen=True, slots=True)
class News:
    """What other servers have done.

    Attributes:
        phrases: what they have stored.
        is_cleared: whether one of them has cleared the cache, before it stored `phrases`.
    """

    phrases: tuple[SharedPhrase, ...] = ()
    is_cleared: bool = False


class SharedPhrases:
    """Exchanges phrases with other servers. Its methods wait for Redis: use them in the background.

    Args:
        max_bytes: maximum size of all phrases in Redis; the owner with the most makes room.

    Attributes:
        is_reachable: whether Redis has answered the last time.
        is_full: whether Redis had no memory for a phrase the last time; phrases are still read.
    """

    def __init__(self, redis: "Redis", max_bytes: float) -> None:
        self.is_reachable = True
        self.is_full = False
        self._redis = redis
        self._max_bytes = max_bytes
        self._store = redis.register_script(_STORE)
        self._drop = redis.register_script(_DROP)
        self._waiting: deque[SharedPhrase] = deque()
        self._epoch: bytes | None = None
        self._cleared = 0
        self._is_cleared = False
        """Whether another server has cleared the cache, which `exchange` has not reported."""
        self._last = 0

    def share(self, phrase: SharedPhrase) -> None:
        """Write a phrase soon; if too many wait, the owner with the most loses its oldest."""
        self._waiting.append(phrase)
        if len(self._waiting) > _MOST_WAITING:
            owners = [each.phrase.voice.owner for each in self._waiting]
            del self._waiting[owners.index(Counter(owners).most_common(1)[0][0])]

    async def exchange(self, known: Iterable[str] = ()) -> News:
        """Write what waits; return what is new beside `known`, or a part of it.

        While Redis is away, that is nothing.
        """
        try:
            if await self._follow_epoch():
                self._is_cleared = True
                self._waiting.clear()
            await self._write_waiting()
            news = await self._read(set(known))
        except away_errors() as error:
            if self.is_reachable:
                self.is_reachable = False
                _log.error("cache_not_shared", error=type(error).__name__)
            return News()
        self._is_cleared = False
        if not self.is_reachable:
            self.is_reachable = True
            _log.info("cache_shared_again")
        return news

    async def _write_waiting(self) -> None:
        """Write what waits; where Redis is full, the rest waits for the next round."""
        try:
            while self._waiting:
                await self._write(written := self._waiting[0])
                with suppress(ValueError):  # it was dropped for a newer one meanwhile
                    self._waiting.remove(written)
                self._note_full(is_full=False)
        except away_errors() as error:
            if not is_full(error):
                raise
            self._note_full(is_full=True)

    def _note_full(self, *, is_full: bool) -> None:
        if is_full and not self.is_full:
            _log.error("cache_redis_full", waiting=len(self._waiting))
        if self.is_full and not is_full:
            _log.info("cache_redis_has_room")
        self.is_full = is_full

    async def drop_voices(self, voices: Iterable[PhraseVoice]) -> None:
        """Delete all phrases of some voices.

        Raises:
            RedisError: Redis is away; so do the other errors of `away_errors`.
        """
        if tags := [_tag(voice) for voice in voices]:
            await self._drop([_INDEX, _CLEARED], [_PHRASE, *tags])

    async def clear(self) -> None:
        """Delete all phrases, and let the other servers clear their memories.

        Raises:
            RedisError: as for `drop_voices`.
        """
        self._waiting.clear()
        self._cleared = int(cast("int", await self._drop([_INDEX, _CLEARED], [_PHRASE])))

    async def close(self) -> None:
        """Close the connection."""
        await self._redis.aclose()

    async def _write(self, shared: SharedPhrase) -> None:
        ttl_ms = max(1, round(1000 * shared.ttl_s))
        phrase = shared.phrase
        data = [_PHRASE, shared.digest, phrase.dump(), _tag(phrase.voice), ttl_ms]
        await self._store([_INDEX, _NEXT], [*data, round(self._max_bytes), _VOICE_TAG_CHARS])

    async def _read(self, known: set[str]) -> News:
        phrases: list[SharedPhrase] = []
        while True:
            rows = await cast(
                "Awaitable[list[tuple[bytes, float]]]",
                self._redis.zrangebyscore(
                    _INDEX, f"({self._last}", "+inf", 0, _MOST_AT_ONCE, withscores=True
                ),
            )
            digests = [member.rpartition(b":")[2].decode() for member, _ in rows]
            wanted = [digest for digest in digests if self._is_cleared or digest not in known]
            phrases += await self._load(wanted)
            if rows:
                self._last = int(rows[-1][1])
            read_bytes = sum(each.phrase.size_bytes for each in phrases)
            if len(rows) < _MOST_AT_ONCE or read_bytes >= _MOST_READ_BYTES:
                return News(tuple(phrases), self._is_cleared)

    async def _follow_epoch(self) -> bool:
        """Start from the beginning where Redis was emptied; return whether a server cleared it."""
        async with self._redis.pipeline(transaction=False) as pipeline:
            pipeline.get(_EPOCH)
            pipeline.get(_CLEARED)
            epoch, cleared = await pipeline.execute()
        if epoch is None:  # not written in every round: a full Redis would refuse it
            await self._redis.set(_EPOCH, secrets.token_hex(8), nx=True)
            epoch = cast("bytes | None", await self._redis.get(_EPOCH))
        count = int(cleared or 0)
        is_cleared = epoch == self._epoch and count != self._cleared
        if epoch != self._epoch:
            self._last = 0
        self._epoch, self._cleared = epoch, count
        return is_cleared

    async def _load(self, digests: list[str]) -> list[SharedPhrase]:
        if not digests:
            return []
        async with self._redis.pipeline(transaction=False) as pipeline:
            for digest in digests:
                pipeline.get(_PHRASE + digest)
                pipeline.pttl(_PHRASE + digest)
            answers: list[Any] = await pipeline.execute()
        loaded: list[SharedPhrase] = []
        for digest, data, ttl_ms in zip(digests, answers[::2], answers[1::2], strict=True):
            if data is not None and ttl_ms > 0:
                loaded += _parsed(digest, data, ttl_ms / 1000)
        return loaded


def _tag(voice: PhraseVoice) -> str:
    """What the index says of a phrase: its voice, and behind that its owner."""
    of_voice = f"{voice.content}:{voice.name}:{voice.owner}"
    return _digest(of_voice)[:_VOICE_TAG_CHARS] + _digest(voice.owner)[:_OWNER_TAG_CHARS]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _parsed(digest: str, data: bytes, ttl_s: float) -> list[SharedPhrase]:
    try:
        return [SharedPhrase(digest, Phrase.load(data), ttl_s)]
    except ValueError:
        _log.warning("cached_phrase_unreadable")
        return []
