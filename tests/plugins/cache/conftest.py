"""Fixtures: caches that share a Redis server."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack

import pytest

from testbed.redis_process import RedisProcess
from voiceagent_tts.access.redis_server import connect
from voiceagent_tts.plugins.cache.shared import SharedPhrases
from voiceagent_tts.plugins.cache.store import PhraseCache
from voiceagent_tts.voices import VoiceFolder

StartCache = Callable[..., PhraseCache]


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
