"""Aligner processes that answer, hang or die, as contexts observe them."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest

from testbed.waiting import until
from voiceagent_tts.core import AudioChunk
from voiceagent_tts.errors import EngineError
from voiceagent_tts.seam.aligner_messages import AlignEvent, Finish
from voiceagent_tts.seam.engine_kind import WorkerSpec
from voiceagent_tts.seam.events import Failed
from voiceagent_tts.synthesizer.events import Source
from voiceagent_tts.synthesizer.workers import Supervisor, WorkerClient
from voiceagent_tts.text.words import split_words
from voiceagent_tts.word_times import aligners as module
from voiceagent_tts.word_times.aligners import AlignerHandle
from voiceagent_tts.word_times.processes import Aligners

WORDS = split_words("Hello there, everybody.")
SILENCE = bytes(3840)
BROKEN = WorkerSpec("no-such-aligner")


@pytest.fixture
async def aligners() -> AsyncIterator[Aligners]:
    supervisors = [Supervisor(WorkerSpec("online")) for _ in range(2)]
    started = Aligners({Source.ONLINE: supervisors})
    await started.start()
    yield started
    for each in supervisors:
        await each.close()


def attach(aligners: Aligners) -> "tuple[list[AlignerHandle], asyncio.Queue[AlignEvent]]":
    """Connect a new context; return its handles and the queue of all answers."""
    answers: asyncio.Queue[AlignEvent] = asyncio.Queue()
    attached = aligners.attach(lambda source, event: answers.put_nowait(event), "v")
    return attached.handles, answers


def workers(aligners: Aligners) -> list[WorkerClient]:
    supervisors = aligners.supervisors.values()
    return [supervisor.worker for supervisor in supervisors if supervisor.worker is not None]


async def test_a_dead_aligner_is_reported_and_not_waited_for(
    aligners: Aligners, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, may_start = WorkerClient.start, asyncio.Event()

    async def start_later(*arguments: Any) -> WorkerClient:
        await may_start.wait()
        return await start(*arguments)

    monkeypatch.setattr(WorkerClient, "start", start_later)
    attached = [attach(aligners) for _ in range(2)]
    handles = [handles[0] for handles, _ in attached]
    for handle in handles:
        handle.expect(WORDS)
        handle.follow("en", "v")
    for worker in workers(aligners):
        os.kill(worker.pid, signal.SIGKILL)
    for _, answers in attached:
        assert isinstance(await answers.get(), Failed)
    assert attach(aligners)[0] == []
    handles[0].push_audio(AudioChunk(0, SILENCE))
    handles[0].send(Finish(handles[0].number))
    may_start.set()
    await until(lambda: len(workers(aligners)) == 2, "both are replaced")
    assert len(attach(aligners)[0]) == 1
    assert [supervisor.restarts for supervisor in aligners.supervisors.values()] == [1, 1]


async def test_an_aligner_that_does_not_answer_is_left(
    aligners: Aligners, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(module._ANSWER_TIMEOUT_S, Source.ONLINE, 0.0)
    (handle,), answers = attach(aligners)
    stopped = next(worker for worker in workers(aligners) if worker.rows_used)
    os.kill(stopped.pid, signal.SIGSTOP)
    try:
        handle.expect(WORDS)
        handle.follow("en", "v")
        for start in range(0, 5 * 1920, 1920):
            handle.push_audio(AudioChunk(start, SILENCE))
            await asyncio.sleep(0)
        assert isinstance(answers.get_nowait(), Failed)
        assert answers.empty()
    finally:
        os.kill(stopped.pid, signal.SIGCONT)
    await until(lambda: stopped.rows_used == 0, "its row is free")


async def test_an_aligner_that_cannot_start_is_left_out() -> None:
    aligners = Aligners(
        {Source.ONLINE: [Supervisor(WorkerSpec("online"))], Source.FORCED: [Supervisor(BROKEN)]}
    )
    await aligners.start()
    try:
        assert [handle.source for handle in attach(aligners)[0]] == [Source.ONLINE]
        assert list(aligners.supervisors) == ["online-0"]
    finally:
        await aligners.supervisors["online-0"].close()


async def test_a_required_aligner_must_start() -> None:
    aligners = Aligners({Source.FORCED: [Supervisor(BROKEN)]}, is_required=True)
    with pytest.raises(EngineError, match="ended with status 2"):
        await aligners.start()
