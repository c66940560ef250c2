"""Callers put a load on a target: they connect, speak, listen, interrupt and think."""

import asyncio
import contextlib
import itertools
import math
import random
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass

from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.plugins.bench.loads import Load, Style, arrivals
from voiceagent_tts.plugins.bench.recorder import FAILURES, Recorder
from voiceagent_tts.plugins.bench.targets.target import Connection, Target
from voiceagent_tts.plugins.bench.utterance import Request, Utterance

_LONGEST_UTTERANCE_S = 180.0
_LONGEST_CANCEL_S = 1.0
"""Wait for what follows a cancel; some servers send nothing more."""
_LAG_SAMPLE_S = 0.1
_LEAST_RETRY_S = 0.1
"""A server that refuses at once is not asked in a busy loop."""


@dataclass(frozen=True, slots=True)
class Section:
    """One load, for some time.

    Attributes:
        load: the load.
        seconds: time in which utterances start, after the warm-up.
        warm_up_s: time before it; what starts then is spoken, but not measured.
        has_new_sockets: whether every utterance opens a connection of its own.
    """

    load: Load
    seconds: float
    warm_up_s: float = 0.0
    has_new_sockets: bool = False

    @property
    def name(self) -> str:
        """Name in tables and documents."""
        return f"{self.load.name}, new sockets" if self.has_new_sockets else self.load.name


@dataclass(frozen=True, slots=True)
class Traffic:
    """What was measured in one section.

    Attributes:
        utterances: those that were due after the warm-up, in that order.
        seconds: time from the first of them to the last end.
        lags_s: samples of the lag of this process's event loop.
        audio_s: length of all received audio, that of the warm-up too.
        most_open: the most utterances that were open at once, those of the warm-up too.
    """

    utterances: tuple[Utterance, ...]
    seconds: float
    lags_s: tuple[float, ...]
    audio_s: float
    most_open: int


class Callers:
    """Speaks to one target, and keeps its connections for the next utterance.

    Args:
        target: what speaks.
        on_utterance: called with every utterance that has ended.
    """

    def __init__(
        self, target: Target, on_utterance: Callable[[Utterance], None] = lambda _: None
    ) -> None:
        self._target = target
        self._on_utterance = on_utterance
        self._idle: list[Connection] = []

    async def aclose(self) -> None:
        """Close the connections that are not in use."""
        idle, self._idle = self._idle, []
        await asyncio.gather(*(connection.aclose() for connection in idle))

    async def run(self, section: Section, style: Style) -> Traffic:
        """Put a section's load on the target, and wait for the last utterance to end.

        Raises:
            VoiceAgentError, OSError: no connection can be opened at the start.
        """
        load, requests = section.load, style.requests()
        if not section.has_new_sockets:
            new = max(0, (load.together or 1) - len(self._idle))
            self._idle += await asyncio.gather(*(self._target.connect() for _ in range(new)))
        began = Recorder.now()
        async with sampled_lag() as lags_s:
            if load.per_s is not None:
                spoken = await self._open_loop(section, load.per_s, requests, style.seed, began)
            else:
                spoken = await self._closed_loop(section, requests, style.seed, began)
        measured = [each for each in spoken if each.due >= began + section.warm_up_s - 1e-9]
        measured.sort(key=lambda each: each.due)
        last = max((each.ended for each in measured), default=began)
        first = measured[0].due if measured else began
        return Traffic(
            tuple(measured),
            last - first,
            tuple(lags_s),
            sum(each.audio_s for each in spoken),
            most_open(spoken),
        )

    async def _open_loop(
        self, section: Section, per_s: float, requests: Iterator[Request], seed: int, began: float
    ) -> Sequence[Utterance]:
        speaking: list[asyncio.Task[Utterance]] = []
        for after_s in arrivals(per_s, seed):
            if after_s >= section.warm_up_s + section.seconds:
                break
            request = next(requests)
            await asyncio.sleep(began + after_s - Recorder.now())
            saying = self._say(request, began + after_s, section.has_new_sockets)
            speaking.append(asyncio.create_task(saying))
        return await asyncio.gather(*speaking)

    async def _closed_loop(
        self, section: Section, requests: Iterator[Request], seed: int, began: float
    ) -> Sequence[Utterance]:
        spoken: list[Utterance] = []
        warm = began + section.warm_up_s
        until = warm + section.seconds

        async def call(number: int) -> None:
            rng = random.Random(f"{seed} {number}")
            due = -math.inf
            while Recorder.now() < until or due < warm:  # at least one is measured
                request, due = next(requests), Recorder.now()
                utterance = await self._say(request, due, section.has_new_sockets)
                spoken.append(utterance)
                await self._pause(utterance, section.load.think_s, rng)

        await asyncio.gather(*(call(number) for number in range(section.load.together or 1)))
        return spoken

    async def _pause(self, utterance: Utterance, think_s: float | None, rng: random.Random) -> None:
        """Wait as a refusal asks; a caller who listens hears the rest, and thinks."""
        if utterance.failure is not None:
            await asyncio.sleep(max(_LEAST_RETRY_S, utterance.retry_after_s))
        if think_s is None:
            return
        if utterance.cancelled is None and utterance.times:
            await asyncio.sleep(max(0.0, _listened_until(utterance) - Recorder.now()))
        await asyncio.sleep(rng.expovariate(1 / think_s) if think_s else 0.0)

    async def _say(self, request: Request, due: float, is_new: bool) -> Utterance:
        recorder = Recorder(Utterance(request, due=due))
        try:
            connection = await self._connection(recorder.utterance, is_new)
        except FAILURES as error:
            recorder.fail_with(error)
        else:
            await speak(connection, recorder)
            await self._give_back(connection, is_new)
        self._on_utterance(recorder.utterance)
        return recorder.utterance

    async def _connection(self, utterance: Utterance, is_new: bool) -> Connection:
        while self._idle and not is_new:
            connection = self._idle.pop()
            if connection.is_usable:
                return connection
            await connection.aclose()
        began = Recorder.now()
        connection = await self._target.connect(is_measured=True)
        utterance.connect_s = Recorder.now() - began
        return connection

    async def _give_back(self, connection: Connection, is_new: bool) -> None:
        if is_new or not connection.is_usable:
            await connection.aclose()
        else:
            self._idle.append(connection)


def most_open(utterances: Sequence[Utterance]) -> int:
    """The most utterances that were open at once; one that ends lets the next begin."""
    changes = [(each.due, 1) for each in utterances] + [(each.ended, -1) for each in utterances]
    return max(itertools.accumulate(change for _, change in sorted(changes)), default=0)


def _listened_until(utterance: Utterance) -> float:
    """When its listener has heard all of it, or interrupts what had arrived already."""
    cut_s = utterance.request.barge_in_s
    cut_at = None if cut_s is None else utterance.heard_at(cut_s)
    end = utterance.playback.starts[-1] + utterance.sizes[-1] / SAMPLE_RATE_HZ
    return end if cut_at is None else cut_at


async def speak(connection: Connection, recorder: Recorder) -> None:
    """Send the text as it is written, listen, and interrupt where planned; wait for the end.

    What fails is recorded, and not raised.
    """
    try:
        await _speak(connection, recorder)
    except FAILURES as error:
        recorder.fail_with(error)


async def _speak(connection: Connection, recorder: Recorder) -> None:
    await connection.start(recorder.utterance.request, recorder)
    feeding = asyncio.create_task(_feed(connection, recorder))
    interrupting = asyncio.create_task(_interrupt(connection, recorder, feeding))
    over = asyncio.create_task(recorder.over.wait())
    try:
        async with asyncio.timeout(_LONGEST_UTTERANCE_S):
            await asyncio.wait({over, interrupting}, return_when=asyncio.FIRST_COMPLETED)
            if interrupting.done():
                await asyncio.wait({over}, timeout=_LONGEST_CANCEL_S)
                recorder.finish()
    except TimeoutError:
        recorder.fail("timeout")
        await connection.cancel()
    finally:
        for task in (over, interrupting, feeding):
            task.cancel()
        await asyncio.gather(over, interrupting, feeding, return_exceptions=True)


async def _feed(connection: Connection, recorder: Recorder) -> None:
    utterance = recorder.utterance
    try:
        for after_s, piece in utterance.request.script:
            await asyncio.sleep(max(0.0, utterance.due + after_s - recorder.now()))
            utterance.sent = utterance.sent or recorder.now()
            await connection.send(piece)
        await connection.end()
    except FAILURES as error:
        recorder.fail_with(error)


async def _interrupt(
    connection: Connection, recorder: Recorder, feeding: "asyncio.Task[None]"
) -> None:
    barge_in_s = recorder.utterance.request.barge_in_s
    if barge_in_s is None:
        await recorder.over.wait()
        return
    await recorder.until_played(barge_in_s)
    if recorder.over.is_set():
        return
    feeding.cancel()
    recorder.utterance.interrupt(recorder.now())
    await connection.cancel()


@contextlib.asynccontextmanager
async def sampled_lag(interval_s: float = _LAG_SAMPLE_S) -> AsyncIterator[list[float]]:
    """Sample how late this event loop runs within the block: the excess of each sleep."""
    lags_s: list[float] = []

    async def sample() -> None:
        while True:
            due = Recorder.now() + interval_s
            await asyncio.sleep(interval_s)
            lags_s.append(Recorder.now() - due)

    sampling = asyncio.create_task(sample())
    try:
        yield lags_s
    finally:
        sampling.cancel()
