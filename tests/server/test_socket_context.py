"""A context that waits to be opened, or for its text to be charged, makes nothing else wait."""

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.redis_process import RedisProcess
from testbed.servers import StartServer
from testbed.slow_lexicon import SLOW_VOICE, slow_lexicon
from testbed.waiting import until
from testbed.wire import Wire
from voiceagent_tts.plugins.keys.limiter import Admission
from voiceagent_tts.protocol.client_connection import ClientAudio
from voiceagent_tts.protocol.messages import (
    CancelledMessage,
    ContextOpened,
    ContextText,
    CutMessage,
    DoneMessage,
    ErrorMessage,
    PongMessage,
)
from voiceagent_tts.server import socket_context
from voiceagent_tts.server.serve import RunningServer
from voiceagent_tts.server.socket_context import SocketContext
from voiceagent_tts.settings.access import Quota

SPOKEN = "The quick brown fox jumps over the lazy dog. " * 3
KEY = {"additional_headers": {"X-API-Key": "key"}}
Obstacle = Callable[[], contextlib.AbstractAsyncContextManager[None]]


@contextlib.asynccontextmanager
async def _no_worker(server: RunningServer) -> AsyncIterator[None]:
    """Within the block, new contexts find that their worker is being replaced."""
    supervisor = server.state.synthesizer.supervisors["espeak"]
    worker, supervisor._worker = supervisor._worker, None
    try:
        yield
    finally:
        async with supervisor._changed:
            supervisor._worker = worker
            supervisor._changed.notify_all()


@contextlib.asynccontextmanager
async def _slow(folder: Path) -> AsyncIterator[None]:
    with slow_lexicon(folder):
        yield


@contextlib.asynccontextmanager
async def _stopped(redis: RedisProcess) -> AsyncIterator[None]:
    with redis.suspended():
        yield


@pytest.mark.parametrize("name", ["lexicon", "worker", "redis"])
async def test_nothing_waits_behind_an_open(
    start_server: StartServer, free_port: int, tmp_path: Path, name: str
) -> None:
    """Cancel, cut and ping are answered while another context of the socket waits to be opened."""
    options: dict[str, Any] = {"voices_folder": tmp_path}
    async with contextlib.AsyncExitStack() as stack:
        redis = RedisProcess(free_port)
        if name == "redis":
            stack.enter_context(redis)
            options |= {"redis": redis.url, "api_keys": ("key",), "key_limits": Quota(contexts=9)}
        server = await start_server(**options)
        wire = await stack.enter_async_context(Wire.connected(server.websocket_url, **KEY))
        speaking = await wire.open(language="en", max_lead_s=0.2)
        await wire.text(speaking, SPOKEN)
        await wire.until(ClientAudio, speaking)
        obstacles: dict[str, Obstacle] = {
            "lexicon": functools.partial(_slow, tmp_path),
            "worker": functools.partial(_no_worker, server),
            "redis": functools.partial(_stopped, redis),
        }
        async with obstacles[name]():
            waiting = await wire.open(voice=SLOW_VOICE, language="en", max_lead_s=0)
            await wire.text(waiting, "Hello there. ")
            await wire.send_raw(wire.connection.cut(speaking.record.context_id, 300))
            await wire.until(CutMessage)
            await wire.cancel(speaking, played_ms=0)
            assert (await wire.until(CancelledMessage, speaking)).text_remaining == SPOKEN
            await wire.send_raw({"type": "ping", "t": 3})
            await wire.until(PongMessage)
            assert not waiting.events, "the other context was still waiting"
        assert (await wire.speak(waiting, "And goodbye.")).done.reason == "complete"
        assert isinstance(waiting.events[0], ContextOpened)


async def test_a_context_is_cancelled_before_it_is_open(
    start_server: StartServer, tmp_path: Path
) -> None:
    """It is answered at once with all of its text unspoken, and takes no row afterwards."""
    log = tmp_path / "requests.jsonl"
    server = await start_server(voices_folder=tmp_path, request_log=log)
    async with Wire.connected(server.websocket_url) as wire:
        with slow_lexicon(tmp_path):
            waiting = await wire.open(voice=SLOW_VOICE, language="en")
            await wire.text(waiting, "Hello ")
            await wire.flush(waiting)
            await wire.text(waiting, "there.")
            await wire.send_raw(wire.connection.cut(waiting.record.context_id, 300))
            assert (await wire.until(CutMessage)).text_remaining == "Hello there."
            await wire.cancel(waiting)
            cancelled = await wire.until(CancelledMessage, waiting)
            assert (cancelled.text_spoken, cancelled.text_remaining) == ("", "Hello there.")
            assert (await wire.until(DoneMessage, waiting)).reason == "cancelled"
            other = await wire.open(voice=SLOW_VOICE, language="en")
        await wire.until(ContextOpened, other)
        await wire.send_raw(wire.connection.cut(waiting.record.context_id, 300))
        assert (await wire.until(CutMessage)).text_remaining == "Hello there."
        assert len(waiting.events) == 2 and server.state.synthesizer.contexts_active == 1
    await until(lambda: log.exists() and log.read_text().count("\n") == 2, "the log is written")
    assert log.read_text().count('"outcome": "cancelled"') == 2


async def test_a_context_that_could_not_be_opened_is_not_kept(start_server: StartServer) -> None:
    """It has said nothing: thousands of them filled the memory of the texts of a key."""
    server = await start_server()
    async with Wire.connected(server.websocket_url) as wire:
        refused = await wire.open(voice="nobody")
        assert (await wire.until(DoneMessage, refused)).reason == "error"
        assert not server.state.recent_texts._of_callers
        await wire.send_raw(wire.connection.cut(refused.record.context_id, 300))
        assert (await wire.until(ErrorMessage)).code == "context_not_found"


async def test_what_waits_is_limited(start_server: StartServer, tmp_path: Path) -> None:
    """Text and flushes beyond the limit are refused at once, and what was accepted is spoken."""
    server = await start_server(voices_folder=tmp_path, max_text_chars=20)
    async with Wire.connected(server.websocket_url) as wire:
        with slow_lexicon(tmp_path):
            waiting = await wire.open(voice=SLOW_VOICE, language="en", max_lead_s=0)
            context_id = waiting.record.context_id
            await wire.text(waiting, "One, two, three.")
            await wire.send_raw({"type": "text", "context_id": context_id, "text": "Four."})
            assert (await wire.until(ErrorMessage, waiting)).code == "text_too_long"
            for flush_id in range(1, 6):  # each counts as a character
                message = {"type": "flush", "context_id": context_id, "flush_id": flush_id}
                await wire.send_raw(message)
            assert (await wire.until(ErrorMessage, waiting)).code == "text_too_long"
            waiting.record.flushes = 4
            await wire.end(waiting)
        assert (await wire.finish(waiting)).done.chars == 16


async def test_text_that_comes_just_after_charged_text_is_spoken_once(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the iteration of the event loop after the last waiting text was spoken."""
    contexts: list[SocketContext] = []
    texts = ["two ", "three. "]
    feed, pop = SocketContext.feed, socket_context._Inbox.pop

    def note_and_feed(context: SocketContext, message: Any) -> None:
        contexts.append(context)
        feed(context, message)

    def pop_and_go_on(inbox: socket_context._Inbox) -> None:
        pop(inbox)
        if not inbox and texts:
            message = ContextText(context_id=contexts[0].context_id, text=texts.pop(0))
            asyncio.get_running_loop().call_soon(contexts[0].feed, message)

    async def charge_slowly(admission: Admission, chars: int) -> None:
        for _ in range(3):
            await asyncio.sleep(0)

    monkeypatch.setattr(SocketContext, "feed", note_and_feed)
    monkeypatch.setattr(socket_context._Inbox, "pop", pop_and_go_on)
    monkeypatch.setattr(Admission, "defer_charge", lambda *_: False)
    monkeypatch.setattr(Admission, "charge", charge_slowly)
    quota = Quota(chars_per_minute=9_000)
    server = await start_server(api_keys=("key",), key_limits=quota)
    async with Wire.connected(server.websocket_url, **KEY) as wire:
        context = await wire.open(language="en")
        await wire.until(ContextOpened, context)
        await wire.text(context, "one ")
        (spoken,) = server.state.synthesizer._contexts
        await until(lambda: len(spoken.text) >= len("one two three. "), "all was pushed")
    assert spoken.text == "one two three. "


async def test_text_that_waits_to_be_charged_can_be_cancelled(
    start_server: StartServer, free_port: int
) -> None:
    """A context with text behind a store that does not answer is cut at once, without that text."""
    with RedisProcess(free_port) as redis:
        server = await start_server(
            redis=redis.url, api_keys=("key",), key_limits=Quota(chars_per_minute=9_000)
        )
        async with Wire.connected(server.websocket_url, **KEY) as wire:
            speaking = await wire.open(language="en", max_lead_s=0.2)
            await wire.text(speaking, "Hello there. ")
            other = await wire.open(language="en")
            await wire.until(ContextOpened, other)
            await wire.until(ClientAudio, speaking)
            with redis.suspended():
                await wire.text(speaking, SPOKEN * 3)
                await wire.text(other, "Text of another context comes through.")
                await wire.until(ClientAudio, other)
                await wire.cancel(speaking, played_ms=0)
                cancelled = await wire.until(CancelledMessage, speaking)
                assert server.state.access.limiter.is_shared, "Redis has not timed out yet"
            assert cancelled.text_remaining == "Hello there. " + SPOKEN * 3
