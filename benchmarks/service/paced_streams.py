"""Run many paced streams from one server, and measure their cost (`benchmarks.service.transport`).

One client process decodes every message as `client.py` does, and records its arrival.
"""

import asyncio
import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import psutil
from websockets.asyncio.client import ClientConnection as ClientWebSocket
from websockets.asyncio.client import connect
from websockets.typing import Subprotocol

from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ
from voiceagent_tts.protocol.client_connection import ClientAudio, ClientConnection
from voiceagent_tts.protocol.messages import SUBPROTOCOL, DoneMessage, ErrorMessage

STREAMS_PER_SOCKET = 25

_SAMPLE_S = 0.25


@dataclass(frozen=True, slots=True)
class Plan:
    """Plan of a stream: its text is sent in one message, `start_s` after the load began."""

    text: str
    start_s: float


@dataclass(slots=True)
class Stream:
    """Measurements of one stream; times are seconds since the load began.

    Attributes:
        began: time just before its text was sent.
        times: arrival of each audio message.
        sizes: samples of each audio message.
        done: the server's `done` message.
    """

    began: float = 0.0
    times: list[float] = field(default_factory=list[float])
    sizes: list[int] = field(default_factory=list[int])
    done: DoneMessage | None = None

    @property
    def first_audio_s(self) -> float:
        """Time from sending its text to its first audio."""
        return self.times[0] - self.began

    @property
    def speech_s(self) -> float:
        """Length of its audio."""
        return sum(self.sizes) / SAMPLE_RATE_HZ


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU time and memory used by the processes of one role."""

    cpu_s: float
    rss_growth_bytes: int


@dataclass(frozen=True, slots=True)
class Load:
    """Measurements of concurrent streams.

    Args:
        streams: measurements of each stream.
        usage: usage by role: `server`, `worker`, `client`.
        client_lag_ms: samples of the client's event loop lag.
    """

    streams: tuple[Stream, ...]
    usage: dict[str, Usage]
    client_lag_ms: tuple[float, ...]


async def carry(
    url: str, server_pid: int, plans: Sequence[Plan], *, max_lead_s: float | None = None
) -> Load:
    """Open all streams as planned, and receive each of them to its end.

    Args:
        url: WebSocket URL of the server.
        server_pid: process of the server; the workers are its children.
        plans: text and start time of each stream.
        max_lead_s: maximum lead of the server over a listener; None for the server's default.

    Raises:
        VoiceAgentError: the server rejected a stream, or sent it with a gap.
        RuntimeError: a stream is shorter than the server reports.
    """
    meter = _Meter(server_pid)
    metering = asyncio.create_task(meter.run())
    sockets_used = math.ceil(len(plans) / STREAMS_PER_SOCKET)
    shares = [plans[first::sockets_used] for first in range(sockets_used)]
    origin = time.perf_counter()
    try:
        async with asyncio.TaskGroup() as group:
            sockets = [
                group.create_task(_Socket(share, max_lead_s, origin).run(url)) for share in shares
            ]
    except BaseExceptionGroup as errors:
        raise _first_of(errors) from None
    finally:
        metering.cancel()
    streams = tuple(itertools.chain.from_iterable(socket.result() for socket in sockets))
    for stream in streams:
        _check_complete(stream)
    return Load(streams, meter.usage(), tuple(meter.lag_ms))


def _first_of(error: BaseException) -> BaseException:
    """Return the first error out of nested exception groups."""
    return _first_of(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


class _Socket:
    """One socket and the streams that share it."""

    def __init__(self, plans: Sequence[Plan], max_lead_s: float | None, origin: float) -> None:
        self._plans = plans
        self._max_lead_s = max_lead_s
        self._origin = origin
        self._connection = ClientConnection()  # checks that positions follow each other
        self._streams = {f"stream-{index}": Stream() for index in range(len(plans))}

    async def run(self, url: str) -> list[Stream]:
        async with connect(
            url, subprotocols=[Subprotocol(SUBPROTOCOL)], compression=None, max_size=None
        ) as websocket:
            self._connection.receive(await websocket.recv())
            async with asyncio.TaskGroup() as group:
                group.create_task(self._listen(websocket))
                for context_id, plan in zip(self._streams, self._plans, strict=True):
                    group.create_task(self._open(websocket, context_id, plan))
        return list(self._streams.values())

    async def _open(self, websocket: ClientWebSocket, context_id: str, plan: Plan) -> None:
        await asyncio.sleep(self._origin + plan.start_s - time.perf_counter())
        self._streams[context_id].began = self._now()
        connection = self._connection
        await websocket.send(connection.open(context_id, max_lead_s=self._max_lead_s))
        await websocket.send(connection.text(context_id, plan.text))
        await websocket.send(connection.end(context_id))

    async def _listen(self, websocket: ClientWebSocket) -> None:
        waiting = len(self._streams)
        while waiting:
            data = await websocket.recv()
            now = self._now()
            match self._connection.receive(data):
                case ClientAudio(context_id=context_id, pcm=pcm):
                    self._streams[context_id].times.append(now)
                    self._streams[context_id].sizes.append(len(pcm) // BYTES_PER_SAMPLE)
                case DoneMessage(context_id=context_id) as done:
                    self._streams[context_id].done = done
                    waiting -= 1
                case ErrorMessage() as error:
                    raise error.to_error()
                case _:
                    pass

    def _now(self) -> float:
        return time.perf_counter() - self._origin


def _check_complete(stream: Stream) -> None:
    assert stream.done is not None
    audio_ms = stream.speech_s * 1000
    if stream.done.reason != "complete" or abs(stream.done.audio_ms - audio_ms) > 1:
        raise RuntimeError(
            f"expected {stream.done.audio_ms} ms of a complete stream, got {audio_ms:.0f} ms of "
            f"one that ended with {stream.done.reason}"
        )


class _Meter:
    """Measures memory and CPU time of all roles, and the client's event loop lag."""

    def __init__(self, server_pid: int) -> None:
        server = psutil.Process(server_pid)
        self._roles = {
            "server": [server],
            "worker": server.children(recursive=True),
            "client": [psutil.Process()],
        }
        self.lag_ms: list[float] = []
        self._cpu_before_s = self._cpu_s()
        self._rss_before_bytes = self._rss_bytes()
        self._rss_peak_bytes = dict(self._rss_before_bytes)

    async def run(self) -> None:
        """Sample until cancelled."""
        while True:
            due = time.perf_counter() + _SAMPLE_S
            await asyncio.sleep(_SAMPLE_S)
            self.lag_ms.append((time.perf_counter() - due) * 1000)
            for role, rss_bytes in self._rss_bytes().items():
                self._rss_peak_bytes[role] = max(self._rss_peak_bytes[role], rss_bytes)

    def usage(self) -> dict[str, Usage]:
        """Return what each role has used since the meter was created."""
        cpu_s = self._cpu_s()
        return {
            role: Usage(
                cpu_s[role] - self._cpu_before_s[role],
                self._rss_peak_bytes[role] - self._rss_before_bytes[role],
            )
            for role in self._roles
        }

    def _cpu_s(self) -> dict[str, float]:
        return {
            role: sum(sum(process.cpu_times()[:2]) for process in processes)
            for role, processes in self._roles.items()
        }

    def _rss_bytes(self) -> dict[str, int]:
        return {
            role: sum(process.memory_info().rss for process in processes)
            for role, processes in self._roles.items()
        }
