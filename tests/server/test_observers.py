"""What records contexts costs neither their listeners nor other records anything."""

import asyncio
from unittest.mock import AsyncMock, Mock

from testbed.servers import StartServer
from testbed.wire import Wire
from voiceagent_tts.protocol.messages import ErrorMessage


async def test_an_observer_that_fails_or_is_slow_costs_nobody_anything(
    start_server: StartServer,
) -> None:
    """A listener gets the audio, the end and the right refusal; all others are told and closed."""
    server = await start_server()
    observers, is_closed = server.state.opener.observers, asyncio.Event()
    failing = Mock(not_opened=Mock(side_effect=RuntimeError), ended=Mock(side_effect=RuntimeError))
    failing.close = AsyncMock(side_effect=RuntimeError)
    slow, last = Mock(close=AsyncMock(side_effect=is_closed.wait)), Mock()
    last.close = AsyncMock(side_effect=is_closed.set)
    observers[:] = [failing, slow, *observers, last]
    async with Wire.connected(server.websocket_url) as wire:
        received = await wire.open(language="en")
        await wire.speak(received, "Hello.")
        assert received.done.reason == "complete"
        refused = await wire.open(voice="nobody")
        assert (await wire.until(ErrorMessage, refused)).code == "invalid_voice"
    await server.state.opener.close()
    for each in (slow, last):
        names = [name for name, _, _ in each.mock_calls]
        assert names == ["ended", "not_opened", "close"]
