"""Fixtures: one server that the tests of a module share."""

from collections.abc import AsyncIterator

import httpx
import pytest_asyncio

from testbed.waiting import PATIENCE_S
from testbed.wire import Wire
from voiceagent_tts.config import Settings
from voiceagent_tts.server.serve import RunningServer, running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_server() -> AsyncIterator[RunningServer]:
    """One server for all tests of a module; the tests run in its event loop."""
    async with running(Settings(port=0)) as server:
        yield server


@pytest_asyncio.fixture(loop_scope="module")
async def wire(shared_server: RunningServer) -> AsyncIterator[Wire]:
    async with Wire.connected(shared_server.websocket_url) as wire:
        yield wire


@pytest_asyncio.fixture(loop_scope="module")
async def http(shared_server: RunningServer) -> AsyncIterator[httpx.AsyncClient]:
    # Certificates, which plain HTTP does not use, would take most of a quick test's time to load.
    async with httpx.AsyncClient(
        base_url=shared_server.url, timeout=PATIENCE_S, verify=False
    ) as client:
        yield client
