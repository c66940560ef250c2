"""Fixtures: a real Redis server."""

from collections.abc import Iterator

import pytest

from testbed.redis_process import RedisProcess, has_redis_server


@pytest.fixture
def redis(free_port: int) -> Iterator[RedisProcess]:
    """A Redis server of this test, empty."""
    if not has_redis_server():
        pytest.skip("no redis-server: see testbed/redis_process.py")
    with RedisProcess(free_port) as server:
        yield server
