"""Hours of calls in little: what a server holds after them is what it held before.

`SOAK_S=600 pytest -s -m soak tests/e2e/test_soak.py` measures ten minutes after five of warm-up,
and prints the figures. Memory grows in steps of a megabyte or two when more is in flight at once
than ever before, which happens ever more rarely; one step in ten minutes is 10 MB/h.
"""

import asyncio
import os
from random import Random

import numpy as np
import psutil
import pytest
from websockets.exceptions import ConnectionClosed

from testbed.server_process import ServerProcess, serving
from testbed.waiting import until
from testbed.wire import Wire

SOAK_S = float(os.environ.get("SOAK_S", "30"))
WARM_UP_S = SOAK_S / 2
LISTENERS = 28  # 70 % of the 40 that play at once on two cores beside other programs
SAMPLE_S = 0.5
SENTENCES = (
    "Of course, I can help you with that. ",
    "Your order left on Tuesday, at nine. ",
    "One moment, please. ",
    "It costs $25, and 3% more with a card. ",
)
VOICES = ("default", "nova", "ash", "en-us", "de", "fr", "es")


async def call(url: str, random: Random) -> None:
    """Speak some replies on one socket: to their end, cancelled, or abandoned with the socket."""
    async with Wire.connected(url) as wire:
        for _ in range(random.randint(1, 6)):
            if not await speak(wire, random):
                wire.reset()
                return


async def speak(wire: Wire, random: Random) -> bool:
    """Speak one reply; returns whether its listener stays."""
    reply = await wire.open(
        voice=random.choice(VOICES), language=random.choice(("en", "de", None)), max_lead_s=2.0
    )
    await wire.text(reply, "".join(random.choices(SENTENCES, k=random.randint(1, 3))))
    await wire.end(reply)
    fate = random.random()
    if fate < 0.6:
        await wire.finish(reply)
        assert reply.done.reason == "complete"
        return True
    for _ in range(random.randint(0, 20)):
        if reply.record.done is None:
            await wire.receive()
    if fate >= 0.7 and reply.record.done is None:
        await wire.stop(reply)
    return fate >= 0.7


async def listen(url: str, seed: int) -> None:
    """Make one call after the other until cancelled."""
    random = Random(seed)
    while True:
        try:
            await call(url, random)
        except ConnectionClosed as error:
            raise AssertionError("the server closed a socket") from error


class Held:
    """What the processes of a server hold, sampled over time."""

    def __init__(self, server: ServerProcess) -> None:
        main = psutil.Process(server.process.pid)
        self._processes = [main, *main.children(recursive=True)]
        self.rss_mb: list[float] = []

    def sample(self) -> None:
        """Record the resident memory."""
        self.rss_mb.append(sum(p.memory_info().rss for p in self._processes) / 1e6)

    def counts(self) -> tuple[int, int, int]:
        """Number of processes, descriptors and threads."""
        return (
            len(self._processes[0].children(recursive=True)),
            sum(process.num_fds() for process in self._processes),
            sum(process.num_threads() for process in self._processes),
        )

    def slope_mb_per_hour(self) -> float:
        """Slope of the memory."""
        hours = np.arange(len(self.rss_mb)) * SAMPLE_S / 3600
        return float(np.polyfit(hours, self.rss_mb, 1)[0])


async def speak_for(server: ServerProcess, seconds: float, held: Held) -> None:
    """Let all listeners call for a time, and sample what the server holds."""
    calls = [asyncio.create_task(listen(server.websocket_url, seed)) for seed in range(LISTENERS)]
    for _ in range(round(seconds / SAMPLE_S)):
        done, _ = await asyncio.wait(calls, timeout=SAMPLE_S, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()
        held.sample()
    for task in calls:
        task.cancel()
    await asyncio.gather(*calls, return_exceptions=True)


@pytest.mark.soak
@pytest.mark.timeout(2 * (WARM_UP_S + SOAK_S) + 120)  # it is cancelled after four fifths of it
async def test_pain_12_memory_descriptors_and_threads_do_not_grow() -> None:
    """After thousands of replies, many of them cut off, the server holds what it held before."""
    with serving(watchdog_s="3600") as server:
        await speak_for(server, WARM_UP_S, Held(server))  # whatever is made once
        server.wait_until_idle()
        held = Held(server)
        before = held.counts()
        await speak_for(server, SOAK_S, held)
        server.wait_until_idle()
        await until(lambda: held.counts() <= before, f"as before: {before}; {held.counts()}")
        grown_mb = np.mean(held.rss_mb[-10:]) - np.mean(held.rss_mb[:10])
        print(
            f"{server.metric('tts_contexts_total'):.0f} contexts in {WARM_UP_S + SOAK_S:g} s; RSS "
            f"{held.rss_mb[0]:.0f} to {held.rss_mb[-1]:.0f} MB in the last {SOAK_S:g} s, slope "
            f"{held.slope_mb_per_hour():.1f} MB/h; processes, descriptors, threads {before} "
            f"before, {held.counts()} after"
        )
        assert grown_mb < 10
        if SOAK_S >= 600:
            assert held.slope_mb_per_hour() < 20
