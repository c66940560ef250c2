"""CPU time and memory of a server on this machine, and CPU time of the client, during a section.

The server is the process that it was started as, and the descendants of that process. Memory is
the resident set as the system counts it: pages that processes share count in each of them.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass

import psutil

from voiceagent_tts.errors import InvalidRequestError

_SAMPLE_S = 0.25


@dataclass(frozen=True, slots=True)
class Usage:
    """What processes have used during a section.

    Attributes:
        client_cpu_s: CPU seconds of this process.
        server_cpu_s: CPU seconds of the server with its descendants; None if it is not known.
        front_cpu_s: those of the server's first process, which listens and starts the others.
        server_peak_bytes: the most memory that its processes had together.
        server_growth_bytes: that peak minus what they had at the start.
        front_growth_bytes: the same of its first process alone.
    """

    client_cpu_s: float
    server_cpu_s: float | None = None
    front_cpu_s: float | None = None
    server_peak_bytes: int | None = None
    server_growth_bytes: int | None = None
    front_growth_bytes: int | None = None


class Meter:
    """Measures from its construction on.

    Args:
        server_pid: the server's first process; None for a server that is not here.

    Raises:
        InvalidRequestError: there is no such process.
    """

    def __init__(self, server_pid: int | None) -> None:
        self._client = psutil.Process()
        self._client_before_s = _cpu_s(self._client)
        self._front = None if server_pid is None else _process(server_pid)
        self._processes = _family(self._front)
        self._cpu_before_s = {process: _cpu_s(process) for process in self._processes}
        self._memory_before = {process: _memory_bytes(process) for process in self._processes}
        self._memory_peak = sum(self._memory_before.values())
        self._front_peak = self._memory_before[self._front] if self._front else 0
        self._is_whole = True

    def sample(self) -> None:
        """Read the memory of the server's processes once more."""
        try:
            memory = {process: _memory_bytes(process) for process in self._processes}
        except psutil.Error:
            self._is_whole = False
            return
        self._memory_peak = max(self._memory_peak, sum(memory.values()))
        if self._front is not None:
            self._front_peak = max(self._front_peak, memory[self._front])

    def usage(self) -> Usage:
        """What was used until now; nothing of a server of which a process has ended."""
        client_cpu_s = _cpu_s(self._client) - self._client_before_s
        self.sample()
        if self._front is None or not self._is_whole:
            return Usage(client_cpu_s)
        try:
            cpu_s = {process: _cpu_s(process) for process in _family(self._front)}
        except psutil.Error:
            return Usage(client_cpu_s)
        used_s = {process: at - self._cpu_before_s.get(process, 0) for process, at in cpu_s.items()}
        return Usage(
            client_cpu_s,
            sum(used_s.values()),
            used_s[self._front],
            self._memory_peak,
            self._memory_peak - sum(self._memory_before.values()),
            self._front_peak - self._memory_before[self._front],
        )


@contextlib.asynccontextmanager
async def metered(server_pid: int | None) -> AsyncIterator[Meter]:
    """Yield a meter whose memory is sampled four times a second within the block.

    Raises:
        InvalidRequestError: there is no such process.
    """
    meter = Meter(server_pid)

    async def sample() -> None:
        while True:
            await asyncio.sleep(_SAMPLE_S)
            meter.sample()

    sampling = asyncio.create_task(sample())
    try:
        yield meter
    finally:
        sampling.cancel()


def _process(pid: int) -> psutil.Process:
    try:
        return psutil.Process(pid)
    except psutil.Error as error:
        raise InvalidRequestError(
            f"server_pid: expected a process of this machine, got {pid}; is the server running?"
        ) from error


def _family(front: psutil.Process | None) -> Iterable[psutil.Process]:
    return [] if front is None else [front, *front.children(recursive=True)]


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def _memory_bytes(process: psutil.Process) -> int:
    return process.memory_info().rss
