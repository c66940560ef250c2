"""Tells a load balancer how many rows are free, in the words of HAProxy's agent check.

Each connection gets one line and is closed: `ready 75%` where three quarters of the rows are free,
`drain` where no new sockets are wanted. The percentage is the server's weight.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable


@contextlib.asynccontextmanager
async def slots_agent(host: str, port: int, state_line: Callable[[], str]) -> AsyncIterator[int]:
    """Answer agent checks within the block.

    Args:
        host: address to listen on.
        port: port to listen on; 0 for a free one.
        state_line: returns the line, without its end.

    Yields:
        The port.

    Raises:
        OSError: the address cannot be bound.
    """

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            writer.write(f"{state_line()}\n".encode())
            await writer.drain()
        writer.close()

    listener = await asyncio.start_server(answer, host, port)
    async with listener:
        yield listener.sockets[0].getsockname()[1]


def agent_line(slots_free: int, slots_total: int, *, is_ready: bool) -> str:
    """Return the line of a server with so many free rows.

    A full server keeps the smallest weight: it refuses contexts itself, with a reason.
    """
    if not is_ready:
        return "drain"
    return f"ready {max(1, round(100 * slots_free / max(1, slots_total)))}%"
