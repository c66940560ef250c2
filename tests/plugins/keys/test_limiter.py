"""Limits in the memory of one server: what is refused, for how long, and what is given back."""

import asyncio
import time
from typing import Any

import pytest

from testbed.waiting import PATIENCE_S
from voiceagent_tts.config import Settings
from voiceagent_tts.errors import ErrorCode, InvalidRequestError, OverloadedError
from voiceagent_tts.plugins.keys.key_store import KeyRing
from voiceagent_tts.plugins.keys.keys import key_of_settings
from voiceagent_tts.plugins.keys.limiter import Limiter, RedisLimits
from voiceagent_tts.plugins.redis.connection import connect
from voiceagent_tts.server.callers import Caller, network_of
from voiceagent_tts.settings.access import Quota, hash_key

KEYS = ("one", "other")
CALLERS = [Caller("192.0.2.1", key_of_settings(hash_key(key)).id) for key in KEYS]
ONE, OTHER = CALLERS


class Clock:
    """The time of day, which stands still until a test moves it."""

    def __init__(self) -> None:
        self.now_s = 1_000_000.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of all windows: a test that is held up does not find itself in the next one."""
    clock = Clock()
    monkeypatch.setattr(time, "time", lambda: clock.now_s)
    return clock


def limiter_of(**settings: Any) -> Limiter:
    given = Settings(api_keys=KEYS, **settings)
    return Limiter(given, KeyRing(given), None)


async def refusal_of(limiter: Limiter, caller: Caller = ONE, chars: int = 1) -> OverloadedError:
    """The error that a new context gets."""
    with pytest.raises(OverloadedError) as refused:
        await limiter.admit(caller, chars)
    assert refused.value.code is ErrorCode.RATE_LIMITED
    assert refused.value.is_retryable and refused.value.status == 429
    return refused.value


async def test_open_contexts_are_limited_per_key() -> None:
    """A context that ends gives its place back, once; another key has its own places."""
    limiter = limiter_of(key_limits=Quota(contexts=2))
    first, _ = [await limiter.admit(ONE) for _ in range(2)]
    refused = await refusal_of(limiter)
    assert "key has used its limit of 2 open contexts" in refused.message
    assert refused.retry_after_ms == 1000
    await limiter.admit(OTHER)
    first.end()
    first.end()
    await limiter.admit(ONE)
    await refusal_of(limiter)


async def test_new_contexts_are_limited_per_second(clock: Clock) -> None:
    """The error says when the window ends; then contexts are admitted again."""
    limiter = limiter_of(key_limits=Quota(contexts_per_s=3))
    for _ in range(3):
        (await limiter.admit(ONE)).end()
    refused = await refusal_of(limiter)
    assert refused.retry_after_ms == 1000
    clock.now_s += 0.98  # the last moment of the window
    last = await refusal_of(limiter)
    assert "try again in 0.1 s" in last.message and last.retry_after_ms in (20, 21)
    clock.now_s += last.retry_after_ms / 1000  # what a client waits
    await limiter.admit(ONE)


async def test_characters_are_limited_per_minute(clock: Clock) -> None:
    """A text that does not fit is refused whole; a shorter one is still accepted."""
    limiter = limiter_of(key_limits=Quota(chars_per_minute=1000))
    admission = await limiter.admit(ONE)
    await admission.charge(900)
    with pytest.raises(OverloadedError) as refused:
        await admission.charge(300)
    assert refused.value.code is ErrorCode.RATE_LIMITED
    assert refused.value.retry_after_ms == 60_000
    await admission.charge(100)
    await admission.charge(149)  # less than a block is counted later
    admission.end()
    await limiter.close()
    await refusal_of(limiter)
    await limiter.admit(OTHER, chars=1000)


async def test_a_text_that_no_minute_has_room_for_is_too_long() -> None:
    """Waiting would not help; a client that retries would wait for ever."""
    limiter = limiter_of(key_limits=Quota(chars_per_minute=10))
    with pytest.raises(InvalidRequestError, match="at most 10 characters at once") as refused:
        await limiter.admit(ONE, chars=11)
    assert refused.value.code is ErrorCode.TEXT_TOO_LONG and not refused.value.is_retryable
    admission = await limiter.admit(ONE)
    await admission.charge(1)
    await admission.charge(10)  # as long as a minute's text, and this minute is empty
    with pytest.raises(OverloadedError):
        await admission.charge(9)


async def test_the_tokens_of_many_short_contexts_are_counted() -> None:
    """Contexts below the size of a block use up the limit, too."""
    limiter = limiter_of(key_limits=Quota(chars_per_minute=1000))
    for _ in range(5):
        admission = await limiter.admit(ONE)
        for _ in range(25):
            await admission.charge(8)
        admission.end()
        await limiter.close()
    await refusal_of(limiter)


async def test_audio_is_limited_per_day(clock: Clock) -> None:
    """Audio counts when its context has ended; then no context opens before the day is over."""
    limiter = limiter_of(key_limits=Quota(audio_s_per_day=60))
    admission = await limiter.admit(ONE)
    admission.end(60.5)
    await limiter.close()
    refused = await refusal_of(limiter)
    assert "60 seconds of audio per day" in refused.message
    assert refused.retry_after_ms == 86_400_000
    await limiter.admit(OTHER)


async def test_addresses_have_limits_of_their_own() -> None:
    """Keys that share an address share its limits; the error names what is used up."""
    limiter = limiter_of(ip_limits=Quota(contexts=1), key_limits=Quota(contexts=5))
    await limiter.admit(ONE)
    assert "this address has used" in (await refusal_of(limiter, OTHER)).message
    await limiter.admit(Caller("192.0.2.2", OTHER.key_id))
    # What was refused because of its address holds no place of its key.
    assert len(limiter._leases[f"key:{OTHER.key_id}"]) == 1


@pytest.mark.parametrize(
    ("ip", "network"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::1", "2001:db8:1:2::/64"),
        ("unix:", "unix:"),
        ("", ""),
    ],
)
def test_a_client_cannot_change_its_address(ip: str, network: str) -> None:
    """One IPv6 client has 2^64 addresses, which count as one."""
    assert network_of(ip) == network


async def test_a_burst_admits_exactly_the_limit() -> None:
    limiter = limiter_of(key_limits=Quota(contexts=10), ip_limits=Quota(contexts_per_s=1000))
    opening = [limiter.admit(ONE) for _ in range(50)]
    results = await asyncio.gather(*opening, return_exceptions=True)
    assert sum(not isinstance(each, BaseException) for each in results) == 10


async def test_a_context_that_is_cancelled_while_it_opens_gives_everything_back() -> None:
    """A client may leave at any moment."""
    limiter = limiter_of(key_limits=Quota(contexts=1), ip_limits=Quota(contexts=1))
    opening = asyncio.create_task(limiter.admit(ONE))
    await asyncio.sleep(0)
    opening.cancel()
    await asyncio.wait([opening])
    if not opening.cancelled():
        opening.result().end()
    await limiter.close()
    assert not limiter._leases
    await limiter.admit(ONE)


@pytest.mark.parametrize("steps", range(6))
async def test_a_close_together_with_the_loss_of_redis_ends_the_renewal(steps: int) -> None:
    """The task ends when it is cancelled, also in the moment in which Redis is found to be away."""
    settings = Settings(api_keys=KEYS, redis="redis://127.0.0.1:1", key_limits=Quota(contexts=1))
    shared = RedisLimits(connect("redis://127.0.0.1:1"))
    limiter = Limiter(settings, KeyRing(settings), shared)
    running = asyncio.create_task(limiter.run())
    await asyncio.sleep(0)
    await limiter.admit(ONE)
    for _ in range(steps):
        await asyncio.sleep(0)
    running.cancel()
    ended, _ = await asyncio.wait({running}, timeout=PATIENCE_S)
    assert ended
