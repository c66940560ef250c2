"""Start servers and synthesizers in the process of a test, and read their metrics."""

import contextlib
import os
import re
import signal
from collections.abc import Awaitable, Callable, Iterator

import httpx

from testbed.waiting import until
from voiceagent_tts.server.serve import RunningServer
from voiceagent_tts.synthesizer.synthesizer import Synthesizer
from voiceagent_tts.synthesizer.workers import WorkerClient

StartServer = Callable[..., Awaitable[RunningServer]]
StartSynthesizer = Callable[..., Awaitable[Synthesizer]]


@contextlib.contextmanager
def silent(server: RunningServer) -> Iterator[None]:
    """Suspend the embedded voice: within the block no sound comes, however late the test is."""
    pid = worker_of(server).pid
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def worker_of(of: RunningServer | Synthesizer, engine: str = "espeak") -> WorkerClient:
    synthesizer = of if isinstance(of, Synthesizer) else of.state.synthesizer
    worker = synthesizer.supervisors[engine].worker
    assert worker is not None
    return worker


async def until_free(server: RunningServer) -> None:
    """Wait until no context is open and no row of the embedded voice is in use."""
    synthesizer = server.state.synthesizer
    await until(lambda: synthesizer.contexts_active == 0, "no context is open")
    await until(lambda: worker_of(server).rows_used == 0, "no row is in use")


def metric_value(server: RunningServer, name: str, **labels: str) -> float:
    """Return a metric of the server; 0 where it has not been counted yet."""
    return server.state.metrics.registry.get_sample_value(name, labels) or 0.0


async def until_metric(server: RunningServer, name: str, value: float) -> None:
    await until(lambda: metric_value(server, name) == value, f"{name} is {value}")


def close_sockets(server: RunningServer) -> None:
    """Close every socket with an internal error, as a failing server does."""
    for session in list(server.state.sessions):
        session.close(1011, "as a failing server does")


async def scrape(server: RunningServer) -> dict[str, float]:
    async with httpx.AsyncClient(base_url=server.url) as http:
        response = await http.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {
        name: float(number)
        for name, number in re.findall(r"^([^#\s]\S*) (\S+)$", response.text, re.MULTILINE)
    }
