"""Tells a load balancer how many rows are free, in the words of HAProxy's agent check.

Each connection gets one line and is closed: `ready 75%` where three quarters of the rows are free,
`drain` where no new sockets are wanted. The percentage is the server's weight.
"""

import asyncio
import contextlib

from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.server.state import ServerHooks, ServerState


def add_to_server(hooks: ServerHooks) -> None:
    """Answer agent checks while the server runs, if its settings have a port for them."""
    state = hooks.state
    if state.settings.slots_port is not None:
        agent = _Agent(state, state.settings.slots_port)
        state.on_start.append(agent.start)
        state.on_close.append(agent.close)


class _Agent:
    """Answers agent checks."""

    def __init__(self, state: ServerState, port: int) -> None:
        self._state = state
        self._port = port
        self._listener: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen.

        Raises:
            InvalidRequestError: the address cannot be bound.
        """
        host = self._state.settings.host
        try:
            self._listener = await asyncio.start_server(self._answer, host, self._port)
        except OSError as error:
            raise InvalidRequestError(
                f"slots_port: cannot bind {host}:{self._port} ({error.strerror}); choose another "
                "port, or 0 for a free one"
            ) from error

    async def _answer(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        state = self._state
        line = agent_line(state.slots_free, state.synthesizer.rows, is_ready=state.is_ready)
        with contextlib.suppress(ConnectionError):
            writer.write(f"{line}\n".encode())
            await writer.drain()
        writer.close()

    async def close(self) -> None:
        """Stop listening; idempotent."""
        if self._listener is not None:
            self._listener.close()
            await self._listener.wait_closed()


def agent_line(slots_free: int, slots_total: int, *, is_ready: bool) -> str:
    """Return the line of a server with so many free rows.

    A full server keeps the smallest weight: it refuses contexts itself, with a reason.
    """
    if not is_ready:
        return "drain"
    return f"ready {max(1, round(100 * slots_free / max(1, slots_total)))}%"
