"""Limits, usage and keys in a real Redis: shared by servers, while it is there, away and back."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
import pytest_asyncio
from limits import RateLimitItemPerMinute
from redis.asyncio import Redis
from structlog.testing import capture_logs

from testbed.proxy import Router, routing
from testbed.redis_process import USUAL_TIMEOUT_S, RedisProcess, clients_wait
from testbed.waiting import PATIENCE_S, until
from voiceagent_tts.config import Settings
from voiceagent_tts.errors import ErrorCode, InvalidRequestError, OverloadedError
from voiceagent_tts.plugins.keys.access import KeysAndLimits
from voiceagent_tts.plugins.keys.key_store import RedisKeys
from voiceagent_tts.plugins.keys.keys import Scope, key_of_settings, make_key
from voiceagent_tts.plugins.keys.limiter import LEASE_S, Limiter, RedisLimits
from voiceagent_tts.plugins.redis.connection import away_errors, connect
from voiceagent_tts.plugins.usage.book import UsageBook, Used, today
from voiceagent_tts.server.callers import Caller
from voiceagent_tts.settings.access import Quota, hash_key

pytestmark = pytest.mark.services

KEY_ID = key_of_settings(hash_key("key")).id
CALLER = Caller("192.0.2.1", KEY_ID)
SPEAK = frozenset({Scope.SPEAK})


class Servers:
    """Access control of several servers with one Redis."""

    def __init__(self, redis: RedisProcess, stack: AsyncExitStack) -> None:
        self._redis = redis
        self._stack = stack

    async def start(self, quota: Quota, without_redis: str = "local") -> KeysAndLimits:
        """Start one more."""
        settings = Settings(
            api_keys=("key",),
            key_limits=quota,
            redis=self._redis.url,
            without_redis=without_redis,  # type: ignore[arg-type]
        )
        access = KeysAndLimits(settings, lambda change: None)
        self._stack.push_async_callback(access.close)
        await access.start()
        return access


@pytest.fixture
async def book_of_server(redis: RedisProcess) -> AsyncIterator[Callable[[], UsageBook]]:
    """Makes the usage books of servers with one Redis; all are closed with the test."""
    async with AsyncExitStack() as stack:

        def make() -> UsageBook:
            book = UsageBook(connect(redis.url))
            stack.push_async_callback(book.close)
            return book

        yield make


@pytest.fixture
async def servers(redis: RedisProcess) -> AsyncIterator[Servers]:
    """Servers with one Redis; all end with the test."""
    async with AsyncExitStack() as stack:
        yield Servers(redis, stack)


async def refused(limiter: Limiter) -> OverloadedError:
    """The error that a new context gets."""
    with pytest.raises(OverloadedError) as error:
        await limiter.admit(CALLER)
    return error.value


async def test_two_servers_share_every_limit(servers: Servers) -> None:
    """What one server has admitted counts for the other, and ends for the other."""
    quota = Quota(contexts=2, contexts_per_s=100, chars_per_minute=1000, audio_s_per_day=60)
    one, other = [(await servers.start(quota)).limiter for _ in range(2)]
    first = await one.admit(CALLER)
    second = await other.admit(CALLER)
    for limiter in (one, other):
        assert "2 open contexts" in (await refused(limiter)).message
    first.end()
    await one.close()
    third = await other.admit(CALLER)
    await second.charge(900)
    with pytest.raises(OverloadedError, match="1000 characters per minute") as error:
        await third.charge(300)
    assert 55_000 < (error.value.retry_after_ms or 0) <= 60_000
    second.end(61)
    third.end()
    await other.close()
    assert "60 seconds of audio per day" in (await refused(one)).message


async def test_a_burst_on_two_servers_admits_exactly_the_limit(servers: Servers) -> None:
    limiters = [(await servers.start(Quota(contexts=10))).limiter for _ in range(2)]
    opening = [limiter.admit(CALLER) for limiter in limiters for _ in range(50)]
    results = await asyncio.gather(*opening, return_exceptions=True)
    assert sum(not isinstance(each, BaseException) for each in results) == 10


async def test_a_dead_server_gives_its_contexts_back(servers: Servers, redis: RedisProcess) -> None:
    """Its leases expire within seconds, by Redis's clock; those of a live server are renewed."""
    limiter = (await servers.start(Quota(contexts=1))).limiter
    await limiter.admit(CALLER)
    client, leases = connect(redis.url), f"voiceagent-tts:contexts:key:{KEY_ID}"
    ((_, expiry),) = await client.zrange(leases, 0, -1, withscores=True)
    seconds, _ = await client.time()
    assert 0 < expiry - seconds <= LEASE_S + 1
    assert 0 < await client.ttl(leases) <= LEASE_S + 1
    await client.zadd(leases, {"of a dead server": seconds - 1})
    limiter_of_other = (await servers.start(Quota(contexts=2))).limiter
    await limiter_of_other.admit(CALLER)  # the dead lease does not count
    assert await client.zscore(leases, "of a dead server") is None
    await client.aclose()


async def test_a_context_that_is_cancelled_while_it_is_admitted_gives_its_lease_back(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The release follows the lease to Redis, however late that arrives."""
    limiter = (await servers.start(Quota(contexts=1))).limiter
    store = limiter._shared
    assert store is not None
    acquire, is_asked, may_arrive = store._acquire, asyncio.Event(), asyncio.Event()

    async def acquire_late(keys: list[str], arguments: list[str | float]) -> object:
        is_asked.set()
        await may_arrive.wait()
        return await acquire(keys, arguments)

    with monkeypatch.context() as patch:
        patch.setattr(store, "_acquire", acquire_late)
        admitting = asyncio.create_task(limiter.admit(CALLER))
        await is_asked.wait()
        admitting.cancel()
        await asyncio.wait({admitting})
        may_arrive.set()
        await limiter.close()
    (await limiter.admit(CALLER)).end()


async def test_a_context_that_ends_while_it_is_renewed_does_not_come_back(
    servers: Servers, redis: RedisProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The renewal of its lease may reach Redis after its end."""
    limiter = (await servers.start(Quota(contexts=1))).limiter
    admission = await limiter.admit(CALLER)
    client = connect(redis.url)
    store = RedisLimits(client)
    renew = store._renew

    async def renew_late(keys: list[str], arguments: list[str | float]) -> None:
        admission.end()
        await limiter.close()
        await renew(keys, arguments)

    monkeypatch.setattr(store, "_renew", renew_late)
    await store.renew(limiter._leases)
    (await limiter.admit(CALLER)).end()
    await client.aclose()


@pytest.mark.parametrize("without_redis", ["local", "refuse"])
async def test_redis_goes_away_and_comes_back(
    servers: Servers, redis: RedisProcess, without_redis: str
) -> None:
    """`local` limits this server's own contexts, `refuse` opens none; both end when Redis is back.

    Redis comes back empty; the open contexts are put there again. The log says each once.
    """
    limiter = (await servers.start(Quota(contexts=2), without_redis)).limiter
    held = await limiter.admit(CALLER)
    with capture_logs() as logs:
        redis.stop()
        if without_redis == "local":
            other = await limiter.admit(CALLER)
            assert "2 open contexts" in (await refused(limiter)).message
            other.end()
        else:
            for _ in range(3):
                error = await refused(limiter)
                assert error.code is ErrorCode.OVERLOADED and error.retry_after_ms == 1000
        assert not limiter.is_shared
        redis.start()
        await until(lambda: limiter.is_shared, "Redis is back")
        client = connect(redis.url)
        leases = await client.zrange(f"voiceagent-tts:contexts:key:{KEY_ID}", 0, -1)
        assert leases == [held.lease.encode()]
        await client.aclose()
        await limiter.admit(CALLER)
        assert "2 open contexts" in (await refused(limiter)).message
    assert [line["event"] for line in logs] == ["redis_away", "redis_back"]


async def test_a_redis_that_hangs_is_given_up_after_a_second(
    servers: Servers, redis: RedisProcess
) -> None:
    """A context waits once, and the contexts after it not at all."""
    with clients_wait(USUAL_TIMEOUT_S):
        limiter = (await servers.start(Quota(contexts=2))).limiter
    (await limiter.admit(CALLER)).end()
    with redis.suspended():
        async with asyncio.timeout(5):
            (await limiter.admit(CALLER)).end()
        assert not limiter.is_shared
    await until(lambda: limiter.is_shared, "Redis is back")


async def test_usage_survives_a_restart_and_an_outage(
    book_of_server: Callable[[], UsageBook], redis: RedisProcess
) -> None:
    """Counts wait in memory while Redis is away; two servers add to the same numbers."""
    one, other = book_of_server(), book_of_server()
    for book in (one, other):
        book.add(KEY_ID, Used(1, 10, 500))
        await book.flush()
    assert await one.read(1) == {today(): {KEY_ID: Used(2, 20, 1000)}}
    redis.stop()
    one.add(KEY_ID, Used(1, 1, 1))
    await one.flush()
    assert await one.read(1) == {today(): {KEY_ID: Used(1, 1, 1)}}
    redis.start()  # empty: what it had is lost, what waited is not
    await one.flush()
    assert await book_of_server().read(1) == {today(): {KEY_ID: Used(1, 1, 1)}}


@pytest_asyncio.fixture
async def losing(redis: RedisProcess) -> AsyncIterator[tuple[Router, Redis]]:
    """A client of Redis, and what can lose the answers on their way to it."""
    async with routing(redis.url) as (router, url):
        with clients_wait(0.3):
            client = connect(url)
        yield router, client
        await client.aclose()


async def test_usage_whose_move_has_no_answer_counts_once(losing: tuple[Router, Redis]) -> None:
    """A Redis that stalls executes every copy that it was sent."""
    router, client = losing
    book, expected = UsageBook(client), Used()
    for is_lost in (False, True, True):
        if is_lost:
            router.lose_answers()
        book.add(KEY_ID, Used(1, 10, 500))
        await book.flush()
        expected += Used(1, 10, 500)
        assert await book.read(1) == {today(): {KEY_ID: expected}}
    assert await UsageBook(client).read(1) == {today(): {KEY_ID: expected}}


async def test_a_hit_of_a_limit_without_an_answer_counts_once(
    losing: tuple[Router, Redis],
) -> None:
    """It is not sent again: the first one may have arrived."""
    router, client = losing
    limits, item = RedisLimits(client), RateLimitItemPerMinute(1000)
    await limits.count(item, "anyone", 1)
    router.lose_answers()
    with pytest.raises(away_errors()):
        await limits.count(item, "anyone", 300)
    assert await limits.has_room(item, "anyone", 699)
    assert not await limits.has_room(item, "anyone", 700)


async def test_usage_that_is_on_its_way_survives_the_end_of_a_server(
    book_of_server: Callable[[], UsageBook],
) -> None:
    """A server that is stopped while it moves its counts neither loses nor doubles them."""
    book = book_of_server()
    for steps in range(6):  # until it is cancelled, at another place each time
        book.add(KEY_ID, Used(1, 10, 500))
        moving = asyncio.create_task(book.flush())
        for _ in range(steps):
            await asyncio.sleep(0)
        moving.cancel()
        await asyncio.wait([moving])
    await book.flush()
    assert await book_of_server().read(1) == {today(): {KEY_ID: Used(6, 60, 3000)}}


async def test_keys_in_redis_are_shared_reloaded_and_kept_in_an_outage(redis: RedisProcess) -> None:
    """A key that one program creates works on every server, also while Redis is away."""
    store = RedisKeys(redis.url)
    first, second = [make_key(name, SPEAK, Quota()) for name in ("first", "second")]
    settings = Settings(keys=redis.url)
    access = KeysAndLimits(settings, lambda change: None)
    with pytest.raises(InvalidRequestError, match="there are no keys at redis://127"):
        await access.keys.start()
    await store.change(lambda document: document.with_key(first.key))
    await access.start()
    assert access.keys.find(first.secret) == first.key
    changes = [
        store.change(lambda document, key=key: document.with_key(key))
        for key in (second.key, make_key("third", SPEAK, Quota()).key)
    ]
    await asyncio.gather(*changes)  # of two programs; none is lost
    await access.keys.reload()
    assert len(access.keys) == 3 and access.keys.find(second.secret) == second.key
    redis.stop()
    with capture_logs() as logs:
        await access.keys.reload()
        await access.keys.reload()
    assert [line["event"] for line in logs] == ["keys_not_read"]
    assert access.keys.find(first.secret) == first.key
    with pytest.raises(OverloadedError, match="cannot reach Redis at redis://127"):
        await store.read()
    await access.close()
    await store.close()


async def test_a_server_whose_keys_are_in_a_redis_that_is_away_does_not_start(
    redis: RedisProcess,
) -> None:
    """It could serve nothing; the error names the address without its password."""
    redis.stop()
    url = redis.url.replace("redis://", "redis://user:secret@")
    access = KeysAndLimits(Settings(keys=url), lambda change: None)
    with pytest.raises(OverloadedError, match="cannot reach Redis at redis://127") as refused:
        await access.start()
    assert "secret" not in refused.value.message
    await access.close()


@pytest.mark.parametrize("without_redis", ["refuse", "local"])
async def test_a_redis_at_its_maxmemory_locks_no_key_out(
    servers: Servers, redis: RedisProcess, without_redis: str
) -> None:
    """It is as one that is away; later it has the leases of open contexts, and no others."""
    quota = Quota(contexts=1, contexts_per_s=100)
    limiter = (await servers.start(quota, without_redis)).limiter
    ended = await limiter.admit(CALLER)
    client, leases = connect(redis.url), f"voiceagent-tts:contexts:key:{KEY_ID}"
    with capture_logs() as logs:
        await client.config_set("maxmemory", "1")
        ended.end()
        await limiter.close()
        opened: list[bytes] = []
        if without_redis == "local":
            opened.append((await limiter.admit(CALLER)).lease.encode())
            assert "1 open contexts" in (await refused(limiter)).message
        else:
            assert (await refused(limiter)).code is ErrorCode.OVERLOADED
        assert not limiter.is_shared
        await client.config_set("maxmemory", "0")
        await until(lambda: limiter.is_shared, "Redis has room")
        await limiter.close()
        assert await client.zrange(leases, 0, -1) == opened
    assert [line["event"] for line in logs] == ["redis_away", "redis_back"]
    if without_redis == "refuse":
        (await limiter.admit(CALLER)).end()
    await client.aclose()


@pytest.mark.parametrize("without_redis", ["refuse", "local"])
async def test_contexts_without_redis_leave_nothing_to_give_back(
    servers: Servers, redis: RedisProcess, without_redis: str
) -> None:
    """Refused or counted by this server alone: only the first may have reached Redis."""
    limiter = (await servers.start(Quota(contexts=2), without_redis)).limiter
    redis.stop()
    for _ in range(20):
        if without_redis == "refuse":
            await refused(limiter)
        else:
            (await limiter.admit(CALLER)).end()
    await limiter.close()
    assert len(limiter._unreleased) <= 1


async def test_many_leases_are_given_back_at_once(
    servers: Servers, redis: RedisProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many contexts have ended without Redis, new ones are admitted soon after."""
    limiter = (await servers.start(Quota(contexts=100))).limiter
    store = limiter._shared
    assert store is not None
    held = await asyncio.gather(*(limiter.admit(CALLER) for _ in range(100)))
    client, leases = connect(redis.url), f"voiceagent-tts:contexts:key:{KEY_ID}"
    await client.acl_setuser("default", commands=["-zrem", "-set"])
    for each in held:
        each.end()
    await limiter.close()
    assert await client.zcard(leases) == 100
    release, calls = store.release, 0

    async def counted(*arguments: Any) -> None:
        nonlocal calls
        calls += 1
        await release(*arguments)

    monkeypatch.setattr(store, "release", counted)
    await client.acl_setuser("default", commands=["+@all"])
    await until(lambda: limiter.is_shared, "Redis writes again")
    assert (calls, await client.zcard(leases)) == (1, 0)
    assert not store._sent
    await client.aclose()


async def test_a_lease_waits_for_the_row_of_its_context(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A context that is over counts until its row is free; the next one waits for it."""
    monkeypatch.setattr("voiceagent_tts.plugins.keys.limiter._FREEING_S", PATIENCE_S)
    limiter = (await servers.start(Quota(contexts=1))).limiter
    held = await limiter.admit(CALLER)
    held.end(has_row=True)
    waiting = asyncio.create_task(limiter.admit(CALLER))
    await limiter.close()
    assert not waiting.done()
    held.free_row()
    (await waiting).end()
