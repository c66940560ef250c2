"""A connection to Redis; each part of a server that asks one has its own, and closes it.

Every command fails within a second where the server is away: a context must not wait for it.
"""

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from voiceagent_tts.errors import InvalidRequestError

if TYPE_CHECKING:
    from redis.asyncio import Redis

TIMEOUT_S = 0.4
"""Half of the maximum time for one command. A command whose connection was closed is sent again, as
it may be stale; one without an answer is not, as a Redis that stalls would execute both."""

PREFIX = "voiceagent-tts"

_MAX_CONNECTIONS = 64


def connect(address: str) -> "Redis":
    """Return a client of the Redis server at `redis://HOST:PORT/DB`; connects on first use.

    Raises:
        InvalidRequestError: the address cannot be read, or has an option that redis-py lacks.
    """
    from redis.asyncio import BlockingConnectionPool, Redis
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
    from redis.exceptions import ConnectionError, RedisError

    try:
        parts = urlsplit(address)
        if parts.scheme != "unix":
            int(parts.path.strip("/") or 0)  # redis-py takes 0 for a database that is no number
        pool = BlockingConnectionPool.from_url(
            address,
            max_connections=_MAX_CONNECTIONS,
            timeout=2 * TIMEOUT_S,
            socket_timeout=2 * TIMEOUT_S,
            socket_connect_timeout=TIMEOUT_S,
            retry=Retry(NoBackoff(), 1, (ConnectionError,)),
        )
        pool.make_connection()  # which reads the options, and connects to nothing
    except (ValueError, TypeError, RedisError):
        raise InvalidRequestError(
            "expected a Redis address such as redis://127.0.0.1:6379/0, without unknown options, "
            f"got {shown(address)}"
        ) from None
    return Redis.from_pool(pool)  # which closes the pool with itself


def away_errors() -> tuple[type[Exception], ...]:
    """Errors of a Redis server that cannot be reached or cannot answer."""
    from redis.exceptions import RedisError

    return (RedisError, OSError, TimeoutError)


def is_full(error: Exception) -> bool:
    """Whether Redis has refused to write for lack of memory (`maxmemory`)."""
    from redis.exceptions import OutOfMemoryError

    return isinstance(error, OutOfMemoryError)


def shown(address: str) -> str:
    """An address for messages and logs: without user and password, also among its options."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return "an address that cannot be read"
    options = "?..." if parts.query else ""
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}{options}"
