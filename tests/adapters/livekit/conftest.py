"""Fixtures: the plugin on a real server, and a check that a test leaves no task running."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from testbed.livekit_conversation import MakeVoice
from testbed.server_process import ServerProcess
from testbed.waiting import PATIENCE_S
from voiceagent_tts.adapters.livekit import TTS
from voiceagent_tts.server.serve import RunningServer


@pytest.fixture(autouse=True)
async def no_task_is_left() -> AsyncIterator[None]:
    """Check that every task of a test ends with the test; runs around all other fixtures."""
    before = asyncio.all_tasks()
    yield
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    if left:
        _, left = await asyncio.wait(left, timeout=PATIENCE_S)
    assert not left, [task.get_name() for task in left]


@pytest.fixture
async def make_voice() -> AsyncIterator[MakeVoice]:
    """Return a function that makes plugins for a server, in English; closes them after the test."""
    made: list[TTS] = []
    async with aiohttp.ClientSession() as session:

        def make(server: RunningServer | ServerProcess | str | None, **options: Any) -> TTS:
            url = server if isinstance(server, str | None) else server.websocket_url
            english: dict[str, Any] = {"voice": "default", "language": "en"}
            made.append(TTS(url=url, http_session=session, **english | options))
            return made[-1]

        yield make
        for voice in made:
            await voice.aclose()
