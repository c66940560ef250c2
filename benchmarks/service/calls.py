"""Generate load: callers that send a text, play the audio, and may barge in.

Open-loop callers arrive at random times, whether or not the server keeps up; closed-loop callers
start a call when their last one has ended. Sockets are reused, as agents do. Times are seconds of
`time.perf_counter`.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field

from benchmarks.service.listener import Playback, first_sound, play
from testbed.agent_text import agent_monologue, agent_sentences
from voiceagent_tts.audio.levels import leading_silence_samples
from voiceagent_tts.client import ClientContext, TTSClient
from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ
from voiceagent_tts.errors import VoiceAgentError
from voiceagent_tts.protocol.client_connection import ClientAudio

_EARLIEST_BARGE_IN_S, _LATEST_BARGE_IN_S = 0.2, 1.5
_LONG_REPLY_WORDS = 100
_LAG_SAMPLE_S = 0.1


@dataclass(frozen=True, slots=True)
class Plan:
    """Plan of a call.

    Attributes:
        text: text, sent in one message.
        barge_in_s: played seconds before the listener barges in; None to play everything.
        seed: seed of the context.
    """

    text: str
    barge_in_s: float | None
    seed: int


@dataclass(slots=True)
class Call:
    """Measurements of a call.

    Attributes:
        plan: plan of the call.
        began: time just before its text was sent.
        ended: arrival of its last message.
        times: arrival of each audio message.
        sizes: samples of each audio message.
        opening: PCM of the first messages, up to the first with sound.
        cancel_s: time from a cancel to its confirmation.
        failure: code of the error that ended the call.
        retry_after_s: time to wait that this error asks for.
    """

    plan: Plan
    began: float = 0.0
    ended: float = 0.0
    times: list[float] = field(default_factory=list[float])
    sizes: list[int] = field(default_factory=list[int])
    opening: list[bytes] = field(default_factory=list[bytes])
    cancel_s: float | None = None
    failure: str | None = None
    retry_after_s: float = 0.0

    @property
    def is_complete(self) -> bool:
        """Whether its text was spoken to the end."""
        return self.failure is None and self.cancel_s is None

    @property
    def audio_s(self) -> float:
        """Duration of the received audio."""
        return sum(self.sizes) / SAMPLE_RATE_HZ

    @property
    def unheard_s(self) -> float:
        """Unplayed audio of a call that was complete before its listener would have barged in."""
        heard_s = self.plan.barge_in_s
        if heard_s is None or self.cancel_s is not None:
            return 0.0
        return max(0.0, self.audio_s - heard_s)

    @property
    def audible_s(self) -> float | None:
        """Time from sending the text to the first played sound; None without sound."""
        sound = first_sound(self.times[: len(self.opening)], self.opening)
        return None if sound is None else sound.audible - self.began

    @property
    def playback(self) -> Playback:
        """Playback of the received audio."""
        return play(self.times, self.sizes)

    def take(self, pcm: bytes) -> None:
        """Record an audio message."""
        had_sound = bool(self.opening) and not _is_silent(self.opening[-1])
        if not had_sound:
            self.opening.append(pcm)
        self.times.append(time.perf_counter())
        self.sizes.append(len(pcm) // BYTES_PER_SAMPLE)

    def played_s(self, now: float) -> float:
        """Return the played seconds, without underruns."""
        starts = self.playback.starts
        heard = zip(starts, self.sizes, strict=True)
        return sum(min(max(0.0, now - start), size / SAMPLE_RATE_HZ) for start, size in heard)


def _is_silent(pcm: bytes) -> bool:
    return leading_silence_samples(pcm) * BYTES_PER_SAMPLE == len(pcm)


@dataclass(frozen=True, slots=True)
class Traffic:
    """Calls of one load section.

    Attributes:
        calls: calls in the order of their start.
        seconds: time from the first text to the last message.
        client_lag_s: samples of this process's event loop lag.
    """

    calls: tuple[Call, ...]
    seconds: float
    client_lag_s: tuple[float, ...]


def plan_calls(barge_ins: float, seed: int) -> Iterator[Plan]:
    """Yield sentences of an agent without end; a share are long replies with a barge-in."""
    rng = random.Random(seed)
    for number, sentence in enumerate(agent_sentences(seed), start=seed):
        if rng.random() < barge_ins:
            heard_s = rng.uniform(_EARLIEST_BARGE_IN_S, _LATEST_BARGE_IN_S)
            yield Plan(agent_monologue(number, _LONG_REPLY_WORDS), heard_s, number)
        else:
            yield Plan(sentence, None, number)


class Callers:
    """Makes calls to a server, and pools their sockets.

    Args:
        url: WebSocket URL of the server.
        voice: voice name; None for the server's default.
        api_key: key, if the server requires one.
        max_lead_s: maximum lead of the server over a listener; None for the server's default.
    """

    def __init__(
        self,
        url: str,
        voice: str | None = None,
        api_key: str | None = None,
        max_lead_s: float | None = None,
    ) -> None:
        self._make_client = lambda: TTSClient(url, api_key)
        self._options = {"voice": voice, "max_lead_s": max_lead_s}
        self._idle: list[TTSClient] = []
        self._clients: list[TTSClient] = []

    async def connect(self, sockets: int) -> None:
        """Open sockets until there are `sockets`."""
        clients = [self._make_client() for _ in range(sockets - len(self._clients))]
        self._clients += clients
        self._idle += clients
        await asyncio.gather(*(client.connect() for client in clients))

    async def close(self) -> None:
        """Close all sockets."""
        await asyncio.gather(*(client.aclose() for client in self._clients))

    async def open_loop(
        self, plans: Iterator[Plan], calls_per_s: float, seconds: float, seed: int
    ) -> Traffic:
        """Make calls with Poisson arrivals for `seconds`, and wait for their ends."""
        rng = random.Random(seed)
        calls: list[asyncio.Task[Call]] = []
        async with _timed() as lag_s:
            began = due = time.perf_counter()
            while due < began + seconds:
                await asyncio.sleep(due - time.perf_counter())
                calls.append(asyncio.create_task(self.call(next(plans))))
                due += rng.expovariate(calls_per_s)
            made = await asyncio.gather(*calls)
        return _traffic(made, lag_s)

    async def closed_loop(self, plans: Iterator[Plan], callers: int, seconds: float) -> Traffic:
        """Keep `callers` calls running for `seconds`, and wait for the last ones to end."""
        await self.connect(callers)
        made: list[Call] = []
        deadline = time.perf_counter() + seconds

        async def call_again() -> None:
            while time.perf_counter() < deadline:
                made.append(await self.call(next(plans)))
                await asyncio.sleep(made[-1].retry_after_s)

        async with _timed() as lag_s:
            await asyncio.gather(*(call_again() for _ in range(callers)))
        return _traffic(made, lag_s)

    async def call(self, plan: Plan) -> Call:
        """Make one call."""
        client = self._idle.pop() if self._idle else await self._connected()
        call = Call(plan)
        try:
            await self._speak(client, call)
        except VoiceAgentError as error:
            call.failure, call.retry_after_s = error.code, (error.retry_after_ms or 0) / 1000
        call.ended = time.perf_counter()
        self._idle.append(client)
        return call

    async def _connected(self) -> TTSClient:
        client = self._make_client()
        self._clients.append(client)
        await client.connect()
        return client

    async def _speak(self, client: TTSClient, call: Call) -> None:
        call.began = time.perf_counter()
        plan = call.plan
        async with await client.open(seed=plan.seed, **self._options) as context:
            await context.send_text(plan.text)
            await context.end()
            cutting_in = asyncio.create_task(_cut_in(context, call))
            try:
                async for event in context:
                    if isinstance(event, ClientAudio):
                        call.take(event.pcm)
            finally:
                if call.cancel_s is None and not cutting_in.done():
                    cutting_in.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await cutting_in


async def _cut_in(context: ClientContext, call: Call) -> None:
    """Cancel when the planned seconds have been played."""
    heard_s = call.plan.barge_in_s
    if heard_s is None:
        return
    while (played_s := call.played_s(time.perf_counter())) < heard_s:
        await asyncio.sleep(max(0.01, heard_s - played_s))
    began = time.perf_counter()
    await context.cancel(played_ms=round(played_s * 1000))
    call.cancel_s = time.perf_counter() - began


def _traffic(calls: Sequence[Call], lag_s: Sequence[float]) -> Traffic:
    ordered = sorted(calls, key=lambda call: call.began)
    last = max(call.ended for call in ordered)
    return Traffic(tuple(ordered), last - ordered[0].began, tuple(lag_s))


@contextlib.asynccontextmanager
async def _timed() -> AsyncIterator[list[float]]:
    """Sample the lag of this event loop within the block."""
    lag_s: list[float] = []

    async def ask() -> None:
        while True:
            due = time.perf_counter() + _LAG_SAMPLE_S
            await asyncio.sleep(_LAG_SAMPLE_S)
            lag_s.append(time.perf_counter() - due)

    asking = asyncio.create_task(ask())
    try:
        yield lag_s
    finally:
        asking.cancel()
