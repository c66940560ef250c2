"""Phrases in a real Redis: shared by servers, bounded, and of no consequence while it is away."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from testbed.redis_process import USUAL_TIMEOUT_S, RedisProcess, clients_wait
from voiceagent_tts.clones import VoiceFolder
from voiceagent_tts.plugins.cache.phrases import Phrase, PhraseKey, PhraseVoice, WordTime
from voiceagent_tts.plugins.cache.shared import SharedPhrases
from voiceagent_tts.plugins.cache.store import PhraseCache
from voiceagent_tts.plugins.clones.clone_files import delete_file, write_file
from voiceagent_tts.plugins.redis.connection import connect

NOVA = PhraseVoice("nova")
StartCache = Callable[..., PhraseCache]

pytestmark = pytest.mark.services


@pytest.fixture
async def start_cache(redis: RedisProcess) -> AsyncIterator[StartCache]:
    """Caches of several servers with one Redis; all end with the test."""
    async with AsyncExitStack() as stack:

        def start(max_bytes: float = 10e6, folder: VoiceFolder | None = None) -> PhraseCache:
            shared = SharedPhrases(connect(redis.url), max_bytes)
            cache = PhraseCache(10e6, 3600, 1, folder=folder, shared=shared)
            stack.push_async_callback(cache.close)
            return cache

        yield start


def key(name: str) -> PhraseKey:
    """The key of a phrase."""
    return PhraseKey(name, name)


def phrase(voice: PhraseVoice = NOVA, size: int = 4800) -> Phrase:
    """A phrase with one word."""
    return Phrase("Hello.", voice, bytes(range(16)) * (size // 16), (WordTime(0, 9, 1.0),))


async def refresh(*caches: PhraseCache) -> None:
    """One round of each, in order."""
    for cache in caches:
        await cache.refresh()


async def test_a_phrase_of_one_server_is_a_hit_on_the_others(start_cache: StartCache) -> None:
    """Also on one that starts later; audio and words arrive unchanged, and its time goes on."""
    one, other = start_cache(), start_cache()
    one.store(key("a"), phrase())
    await refresh(one, other)
    assert other.find(key("a"), needs_words=True) == phrase()
    late = start_cache()
    for number in range(40):
        other.store(key(str(number)), phrase())
    await refresh(other, late, one)
    assert len(late.memory) == len(one.memory) == 41


async def test_what_is_read_at_once_is_bounded(
    start_cache: StartCache, redis: RedisProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that starts reads all that others have stored, but in several rounds."""
    one = start_cache()
    for number in range(40):
        one.store(key(str(number)), phrase())
    await one.refresh()
    monkeypatch.setattr("voiceagent_tts.plugins.cache.shared._MOST_READ_BYTES", 60_000)
    late = SharedPhrases(connect(redis.url), 10e6)
    rounds = [len((await late.exchange()).phrases) for _ in range(4)]
    await late.close()
    assert rounds == [16, 16, 8, 0]


async def test_redis_keeps_the_newest_phrases_of_all_servers(
    start_cache: StartCache, redis: RedisProcess
) -> None:
    """Their size is bounded, and every entry ends by itself."""
    one = start_cache(max_bytes=20_000)
    for number in range(6):
        one.store(key(str(number)), phrase())
    await one.refresh()
    late = start_cache()
    await late.refresh()
    assert late.memory.digests() == ["2", "3", "4", "5"]
    client = connect(redis.url)
    for stored in await client.keys("voiceagent-tts:cache:phrase:*"):
        assert 0 < await client.ttl(stored) <= 3600
    await client.aclose()


async def test_a_key_fills_its_own_share_of_redis(
    start_cache: StartCache, redis: RedisProcess
) -> None:
    """One that stores many phrases drops its own oldest ones, and those of no other key."""
    one, victim, attacker = start_cache(max_bytes=26_000), *map(owned, ("victim", "attacker"))
    one.store(key("warmed"), phrase())
    one.store(key("victim"), phrase(victim))
    for number in range(9):
        one.store(key(str(number)), phrase(attacker))
        await one.refresh()
    late = start_cache()
    await late.refresh()
    assert sorted(late.memory.digests()) == ["6", "7", "8", "victim", "warmed"]


async def test_a_key_fills_its_own_share_of_what_waits(
    start_cache: StartCache, redis: RedisProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two rounds one may store more than waits; another's is written all the same."""
    monkeypatch.setattr("voiceagent_tts.plugins.cache.shared._MOST_WAITING", 4)
    one, late = start_cache(), start_cache()
    one.store(key("victim"), phrase(owned("victim")))
    for number in range(9):
        one.store(key(str(number)), phrase(owned("attacker")))
    await refresh(one, late)
    assert sorted(late.memory.digests()) == ["6", "7", "8", "victim"]


def owned(owner: str) -> PhraseVoice:
    """A voice as a key uses it."""
    return PhraseVoice("nova", owner=owner)


async def test_clearing_one_server_clears_all(start_cache: StartCache) -> None:
    """Phrases that are stored afterwards are shared as before."""
    one, other = start_cache(), start_cache()
    one.store(key("a"), phrase())
    await refresh(one, other)
    assert await other.clear()
    other.store(key("b"), phrase())
    await refresh(other, one)
    assert one.memory.digests() == other.memory.digests() == ["b"]


async def test_what_waited_when_another_server_cleared_is_not_shared(
    start_cache: StartCache,
) -> None:
    """It was made before the clear, and would come back to all servers with the next exchange."""
    one, other = start_cache(), start_cache()
    await refresh(one, other)
    one.store(key("a"), phrase())
    assert await other.clear()
    await refresh(one, other, one)
    assert one.memory.digests() == other.memory.digests() == []


async def test_a_withdrawn_voice_leaves_redis_too(start_cache: StartCache, tmp_path: Path) -> None:
    """A server that starts afterwards finds none of its phrases."""
    folder = VoiceFolder(tmp_path)
    write_file(folder.file("ann"), b"1")
    one, other = start_cache(folder=folder), start_cache(folder=folder)
    one.store(key("a"), phrase(await one.voices.load("ann")))
    one.store(key("b"), phrase())
    await refresh(one, other)
    assert set(other.memory.digests()) == {"a", "b"}
    delete_file(folder.file("ann"))
    await refresh(one, other)
    late = start_cache()
    await late.refresh()
    for cache in (one, other, late):
        assert cache.memory.digests() == ["b"]


async def test_without_redis_each_server_has_its_own_phrases(
    start_cache: StartCache, redis: RedisProcess
) -> None:
    """What was stored meanwhile is shared when Redis is back, also if it is empty then."""
    one, other = start_cache(), start_cache()
    one.store(key("a"), phrase())
    await refresh(one, other)
    redis.stop()
    one.store(key("b"), phrase())
    await refresh(one, other)
    assert not one.is_shared
    assert one.find(key("a"), needs_words=True) is not None
    assert other.find(key("b"), needs_words=True) is None
    assert not await other.clear()
    redis.start()
    await refresh(one, other)
    assert one.is_shared
    assert other.find(key("b"), needs_words=True) is not None


async def test_a_lookup_never_waits_for_redis(start_cache: StartCache, redis: RedisProcess) -> None:
    """While Redis hangs, the background round waits for it, and lookups answer in between."""
    with clients_wait(USUAL_TIMEOUT_S):
        one = start_cache()
    one.store(key("a"), phrase())
    with redis.suspended():
        tending = asyncio.create_task(one.refresh())
        await asyncio.sleep(0)
        assert one.find(key("a"), needs_words=True) is not None
        assert not tending.done()
        await tending
    assert not one.is_shared


async def test_a_full_redis_is_told_and_used_again(
    start_cache: StartCache, redis: RedisProcess
) -> None:
    """At `maxmemory` phrases are read, but not written; with room, those that waited are shared."""
    one, other = start_cache(), start_cache()
    one.store(key("a"), phrase())
    await one.refresh()
    client = connect(redis.url)
    await client.config_set("maxmemory", "1")
    one.store(key("b"), phrase())
    with capture_logs() as logs:
        await refresh(one, other, one)
        assert one.is_shared and one.is_redis_full and not other.is_redis_full
        assert other.memory.digests() == ["a"]
        await client.config_set("maxmemory", "0")
        await refresh(one, other)
    assert not one.is_redis_full
    assert set(other.memory.digests()) == {"a", "b"}
    assert [entry["event"] for entry in logs] == ["cache_redis_full", "cache_redis_has_room"]
    await client.aclose()


async def test_bytes_that_are_no_phrase_are_left_out(
    start_cache: StartCache, redis: RedisProcess
) -> None:
    """Other phrases are read all the same."""
    one, other = start_cache(), start_cache()
    client = connect(redis.url)
    wrong = (b"\x00nonsense", b"[]\n", b"{}\n", b"\xff\n", b"")
    for number, data in enumerate(wrong):
        one.store(key(str(number)), phrase())
        await one.refresh()
        await client.set(f"voiceagent-tts:cache:phrase:{number}", data, keepttl=True)
    await client.aclose()
    one.store(key("b"), phrase())
    await one.refresh()
    await other.refresh()
    assert other.memory.digests() == ["b"]
