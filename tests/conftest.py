"""What many tests stand on: the real server on the embedded voice, and the engine slowed down."""

import contextlib
import signal
from collections.abc import AsyncIterator, Iterator
from typing import Any

import hypothesis
import pytest

from testbed.server_process import ServerProcess, serving
from testbed.servers import StartServer, StartSynthesizer
from voiceagent_tts.config import Settings
from voiceagent_tts.server.serve import RunningServer, running
from voiceagent_tts.synthesizer.options import Limits
from voiceagent_tts.synthesizer.supervisor import Supervisor
from voiceagent_tts.synthesizer.synthesizer import Synthesizer
from voiceagent_tts.synthesizer.worker_client import WorkerSpec

# How long an example takes says how busy the machine is, not whether the claim holds.
hypothesis.settings.register_profile("no deadline", deadline=None)
hypothesis.settings.load_profile("no deadline")

# What a shell starts in the background ignores SIGINT, and so would every process of these tests.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def served() -> Iterator[ServerProcess]:
    """One server for all tests that leave it as it was; it ends idle, with status 0."""
    with serving() as server:
        yield server
        server.wait_until_idle()
        server.terminate()
        assert server.process.wait(20) == 0


@pytest.fixture
async def start_server() -> AsyncIterator[StartServer]:
    """Start real servers with given settings; all end with the test."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(**settings: Any) -> RunningServer:
            return await stack.enter_async_context(running(Settings(port=0, **settings)))

        yield start


@pytest.fixture
async def server(start_server: StartServer) -> RunningServer:
    """A real server on the embedded voice, on a free port of this machine."""
    return await start_server()


@pytest.fixture
async def start_synthesizer() -> AsyncIterator[StartSynthesizer]:
    """Start synthesizers over real espeak workers; all end with the test."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(
            limits: Limits | None = None, throttle: dict[str, Any] | None = None, **options: Any
        ) -> Synthesizer:
            spec = WorkerSpec("espeak", throttle=throttle)
            synthesizer = Synthesizer({"espeak": Supervisor(spec)}, limits, **options)
            await synthesizer.start()
            stack.push_async_callback(synthesizer.close)
            return synthesizer

        yield start
