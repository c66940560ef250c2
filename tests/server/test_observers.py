"""What records contexts costs neither their listeners nor other records anything."""

import asyncio
import threading
from unittest.mock import AsyncMock, Mock

import pytest

from testbed.servers import StartServer, worker_of
from testbed.waiting import PATIENCE_S
from testbed.wire import Wire
from voiceagent_tts.protocol.messages import DoneMessage, ErrorMessage


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


async def test_whatever_ends_an_opening_is_recorded(start_server: StartServer) -> None:
    """A client that leaves while the names of clones are read, and a defect of the server."""
    server = await start_server()
    opener, is_read, observer = server.state.opener, threading.Event(), AsyncMock()
    observer.not_opened = Mock()
    opener.observers[:] = [observer]
    voices = server.state.synthesizer.voices
    async with Wire.connected(server.websocket_url) as wire:
        voices.read_clones = lambda: is_read.wait(PATIENCE_S)
        left = await wire.open(language="en")
        await wire.cancel(left)
        assert (await wire.until(DoneMessage, left)).reason == "cancelled"
        is_read.set()
        voices.read_clones = Mock(side_effect=IndexError)
        failed = await wire.open(language="en")
        assert (await wire.until(ErrorMessage, failed)).code == "internal"
    assert [call.args[2:] for call in observer.not_opened.mock_calls] == [
        ("cancelled",),
        ("refused", "internal"),
    ]
    refused = server.state.metrics.registry.get_sample_value
    assert refused("tts_contexts_refused_total", {"code": "internal"}) == 1


async def test_what_cannot_be_closed_keeps_nothing_else_open(start_server: StartServer) -> None:
    """A Redis that hangs, for example: the workers end, and what they have done is recorded."""
    server = await start_server()
    worker, observer = worker_of(server), AsyncMock()
    server.state.opener.observers.append(observer)
    server.state.on_close[:] = [AsyncMock(side_effect=[TimeoutError, None]), AsyncMock()]
    with pytest.raises(TimeoutError):
        await server.state.close()
    assert worker.closed.is_set()
    observer.close.assert_awaited_once()
    server.state.on_close[1].assert_awaited_once()
