"""What records contexts costs neither their listeners nor other records anything."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from testbed.wire import Wire
from voiceagent_tts.protocol.messages import ErrorMessage
from voiceagent_tts.server.serve import RunningServer

StartServer = Callable[..., Awaitable[RunningServer]]


class FailingObserver:
    """Fails at everything."""

    def not_opened(self, *_: Any) -> None:
        """See `ContextObserver`."""
        raise RuntimeError

    def ended(self, *_: Any) -> None:
        """See `ContextObserver`."""
        raise RuntimeError

    async def close(self) -> None:
        """See `ContextObserver`."""
        raise RuntimeError


class Ends:
    """Counts what it is told, and whether it was closed."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.is_closed = asyncio.Event()

    def not_opened(self, *_: Any) -> None:
        """See `ContextObserver`."""
        self.seen.append("not opened")

    def ended(self, *_: Any) -> None:
        """See `ContextObserver`."""
        self.seen.append("ended")

    async def close(self) -> None:
        """See `ContextObserver`."""
        self.is_closed.set()


class WaitingObserver(Ends):
    """Closes only after another one, whichever comes first."""

    def __init__(self, other: Ends) -> None:
        super().__init__()
        self._other = other

    async def close(self) -> None:
        """See `ContextObserver`."""
        await self._other.is_closed.wait()
        await super().close()


async def test_an_observer_that_fails_or_is_slow_costs_nobody_anything(
    start_server: StartServer,
) -> None:
    """A listener gets the audio, the end and the right refusal; all others are told and closed."""
    server = await start_server()
    last = Ends()
    slow = WaitingObserver(last)
    server.state.opener.observers[:0] = [FailingObserver(), slow]
    server.state.opener.observers.append(last)
    async with Wire.connected(server.websocket_url) as wire:
        received = await wire.open(language="en")
        await wire.speak(received, "Hello.")
        assert received.done.reason == "complete"
        refused = await wire.open(voice="nobody")
        assert (await wire.until(ErrorMessage, refused)).code == "invalid_voice"
    await server.state.opener.close()
    assert slow.is_closed.is_set() and slow.seen == last.seen == ["ended", "not opened"]
