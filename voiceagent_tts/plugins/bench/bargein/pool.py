"""Runs concurrent sessions, each in a process of its own, as both hosts do in production.

A process runs one session after another. Sessions that shared an event loop would delay each other,
and the measurements would include that.
"""

import asyncio
import contextlib
import gc
import importlib
import logging
import multiprocessing
import os
import time
import warnings
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing.sharedctypes import Synchronized
from typing import Self

from voiceagent_tts.offspring import Following
from voiceagent_tts.plugins.bench.bargein.replies import Cut
from voiceagent_tts.plugins.bench.bargein.session import Call, Host, Reply, Talk
from voiceagent_tts.plugins.bench.bargein.wire import wire_to
from voiceagent_tts.plugins.bench.callers import sampled_lag

_POLL_S = 0.2
_LAG_SAMPLE_S = 0.01
_STAGGER_S = 0.15
"""Time between the starts of two sessions, so that their first replies do not coincide."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """The results of one session.

    Args:
        replies: in order; fewer than planned if the session broke off.
        lags_s: samples of the lag of the process's event loop.
        error: why the session broke off; "" if it did not.
    """

    replies: list[Reply]
    lags_s: list[float]
    error: str


class SessionPool:
    """A pool of processes that run sessions of one host."""

    def __init__(self, host: Host, size: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.size = size
        self._done = context.Value("i", 0)
        given = host, self._done, os.getpid()
        self._executor = ProcessPoolExecutor(size, context, _prepare, given)

    async def __aenter__(self) -> Self:
        """Start all processes; each is ready when it has imported the host."""
        loop = asyncio.get_running_loop()
        naps = [loop.run_in_executor(self._executor, time.sleep, 0.2) for _ in range(self.size)]
        await asyncio.gather(*naps)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._executor.shutdown(wait=True, cancel_futures=True)

    async def talk(
        self, call: Call, plans: Sequence[Sequence[Cut]], on_progress: Callable[[int], None]
    ) -> list[Conversation]:
        """Run a session for each plan, concurrently.

        Args:
            call: voice of the agents, and their user.
            plans: the cuts of each session.
            on_progress: called regularly with the number of replies so far.
        """
        with self._done.get_lock():
            self._done.value = 0
        loop = asyncio.get_running_loop()
        talking = [
            loop.run_in_executor(self._executor, _talk_alone, call, list(plan), number)
            for number, plan in enumerate(plans)
        ]
        watching = asyncio.create_task(self._watch(on_progress))
        try:
            return await asyncio.gather(*talking)
        finally:
            watching.cancel()
            on_progress(self._done.value)

    async def _watch(self, on_progress: Callable[[int], None]) -> None:
        while True:
            await asyncio.sleep(_POLL_S)
            on_progress(self._done.value)


# In each process.


_here: "tuple[Talk, Synchronized[int]] | None" = None
"""This process's host, and the shared counter of replies."""


def _prepare(host: Host, done: "Synchronized[int]", parent_pid: int) -> None:
    """Import the host once, and silence its logs."""
    global _here
    Following(parent_pid)()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    with contextlib.suppress(ImportError):
        from loguru import logger

        logger.remove()
    talk: Talk = importlib.import_module(f"voiceagent_tts.plugins.bench.bargein.{host}").talk
    _here = talk, done
    gc.collect()
    gc.freeze()  # a full garbage collection would stop playback for 0.2 s


def _talk_alone(call: Call, cuts: list[Cut], number: int) -> Conversation:
    return asyncio.run(_converse(call, cuts, number))


async def _converse(call: Call, cuts: list[Cut], number: int) -> Conversation:
    assert _here is not None
    talk, done = _here
    replies: list[Reply] = []

    def note(reply: Reply) -> None:
        replies.append(reply)
        with done.get_lock():
            done.value += 1

    error = ""
    async with sampled_lag(_LAG_SAMPLE_S) as lags_s:
        await asyncio.sleep(number * _STAGGER_S)
        try:
            async with _with_fault(call) as (faulty, inject):
                await talk(faulty, cuts, inject, note)
        except Exception as reason:  # the other sessions continue, and the report shows it
            error = f"{type(reason).__name__}: {reason}"
    return Conversation(replies, lags_s, error)


@contextlib.asynccontextmanager
async def _with_fault(call: Call) -> AsyncIterator[tuple[Call, Callable[[], object]]]:
    """Yield the call, through a proxy where connections are to be cut, and what injects a fault."""
    if call.fault == "connection":
        async with wire_to(call.server_url) as (wire, url):
            yield call.through(url), wire.cut
    else:
        yield call, call.fault or _nothing


def _nothing() -> None:
    """No fault."""
