"""CPU time and memory of a server on this machine, and CPU time of the client, during a section.

The server is the process that it was started as, and the descendants of that process. Memory is
the resident set as the system counts it: pages that processes share count in each of them.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
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
        server_growth_bytes: that peak minus what they had before the first section.
        front_growth_bytes: that growth of its first process alone.
    """

    client_cpu_s: float
    server_cpu_s: float | None = None
    front_cpu_s: float | None = None
    server_peak_bytes: int | None = None
    server_growth_bytes: int | None = None
    front_growth_bytes: int | None = None

    def figures(self, audio_s: float, streams: int) -> dict[str, float]:
        """What one stream costs, under its names in a section; only what is known.

        CPU is in per cent of one core for each second of audio: the share of a stream that plays.
        Memory is in MiB.

        Args:
            audio_s: audio that was received meanwhile.
            streams: the most streams at once.
        """
        percent, mib = 100 / audio_s if audio_s else None, 1 / 2**20
        each = mib / streams if streams else None
        found = {
            "server_cpu_percent": (self.server_cpu_s, percent),
            "front_cpu_percent": (self.front_cpu_s, percent),
            "client_cpu_percent": (self.client_cpu_s, percent),
            "server_mb": (self.server_peak_bytes, mib),
            "server_mb_per_stream": (self.server_growth_bytes, each),
            "front_mb_per_stream": (self.front_growth_bytes, each),
        }
        return {
            name: round(value * scale, 4)
            for name, (value, scale) in found.items()
            if value is not None and scale is not None
        }


class Meter:
    """Measures one section after the other; memory grows from what it was when this was made.

    Args:
        server_pid: the server's first process; None for a server that is not here.

    Raises:
        InvalidRequestError: there is no such process.
    """

    def __init__(self, server_pid: int | None) -> None:
        self._client = psutil.Process()
        self._front = None if server_pid is None else _process(server_pid)
        self._processes: list[psutil.Process] = []
        self._cpu_before_s: dict[psutil.Process, float] = {}
        self._idle_bytes = self._front_idle_bytes = 0
        self.begin()
        self._idle_bytes, self._front_idle_bytes = self._peak_bytes, self._front_peak_bytes

    def begin(self) -> None:
        """Begin a section."""
        self._client_before_s = _cpu_s(self._client)
        self._peak_bytes = self._front_peak_bytes = 0
        self._is_whole = self._front is not None
        with self._while_it_runs():
            self._processes = _family(self._front)
            self._cpu_before_s = {process: _cpu_s(process) for process in self._processes}
        self.sample()

    def sample(self) -> None:
        """Read the memory of the server's processes once more."""
        with self._while_it_runs():
            used = [process.memory_info().rss for process in self._processes]
            self._peak_bytes = max(self._peak_bytes, sum(used))
            self._front_peak_bytes = max(self._front_peak_bytes, *used[:1], 0)

    def usage(self) -> Usage:
        """What the section has used until now; nothing of a server of which a process has ended."""
        client_cpu_s = _cpu_s(self._client) - self._client_before_s
        self.sample()
        used_s: list[float] = []
        with self._while_it_runs():
            before_s = self._cpu_before_s
            used_s = [_cpu_s(each) - before_s.get(each, 0.0) for each in _family(self._front)]
        if not self._is_whole:
            return Usage(client_cpu_s)
        return Usage(
            client_cpu_s,
            sum(used_s),
            used_s[0],
            self._peak_bytes,
            self._peak_bytes - self._idle_bytes,
            self._front_peak_bytes - self._front_idle_bytes,
        )

    @contextlib.contextmanager
    def _while_it_runs(self) -> Iterator[None]:
        try:
            yield
        except psutil.Error:
            self._is_whole = False

    @contextlib.asynccontextmanager
    async def section(self) -> AsyncIterator[None]:
        """Begin a section, and sample memory four times a second until the block ends."""
        self.begin()

        async def sample() -> None:
            while True:
                await asyncio.sleep(_SAMPLE_S)
                self.sample()

        sampling = asyncio.create_task(sample())
        try:
            yield
        finally:
            sampling.cancel()


def _process(pid: int) -> psutil.Process:
    try:
        return psutil.Process(pid)
    except psutil.Error as error:
        raise InvalidRequestError(
            f"server_pid: expected a process of this machine, got {pid}; is the server running?"
        ) from error


def _family(front: psutil.Process | None) -> list[psutil.Process]:
    """The server's first process, and all of its descendants."""
    return [] if front is None else [front, *front.children(recursive=True)]


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system
