"""The agent check: one line for each connection, in the words of HAProxy."""

import asyncio

import pytest

from testbed.servers import StartServer, worker_of
from testbed.waiting import until
from testbed.wire import Wire
from voiceagent_tts.plugins.slots.server import agent_line
from voiceagent_tts.protocol.client_connection import ClientAudio


@pytest.mark.parametrize(
    ("free", "total", "is_ready", "line"),
    [
        (1, 4, True, "ready 25%"),
        (0, 4, True, "ready 1%"),
        (4, 4, False, "drain"),
    ],
)
def test_a_line_has_the_share_of_free_rows(
    free: int, total: int, is_ready: bool, line: str
) -> None:
    """A full server keeps the smallest weight, and one that is not ready gets no new sockets."""
    assert agent_line(free, total, is_ready=is_ready) == line


async def test_a_server_answers_agent_checks(start_server: StartServer, free_port: int) -> None:
    """Whoever connects reads one line; it follows rows and drain."""
    server = await start_server(slots_port=free_port)

    async def asked() -> str:
        reader, writer = await asyncio.open_connection("127.0.0.1", free_port)
        line = (await reader.read()).decode()
        writer.close()
        await writer.wait_closed()
        return line

    worker = worker_of(server)
    await until(lambda: not worker.rows_used, "the server's own probe is over")
    assert await asked() == "ready 100%\n"
    async with Wire.connected(server.websocket_url) as wire:
        contexts = [await wire.open(max_lead_s=0.3) for _ in range(6)]
        for received in contexts:
            await wire.text(received, "The quick brown fox jumps over the lazy dog. " * 20)
            await wire.until(ClientAudio, received)
        assert await asked() == "ready 99%\n"
    await server.state.drain(1)
    assert await asked() == "drain\n"
