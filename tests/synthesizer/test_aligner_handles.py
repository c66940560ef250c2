"""The aligner processes as contexts meet them: there, hanging, gone."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator

import pytest

from testbed.waiting import until
from voiceagent_tts.core import AudioChunk
from voiceagent_tts.errors import EngineError
from voiceagent_tts.seam.alignment import Aligned, AlignEvent
from voiceagent_tts.seam.events import Done, Failed
from voiceagent_tts.synthesizer import aligner_handles as module
from voiceagent_tts.synthesizer.aligner_handles import Aligners, Follower
from voiceagent_tts.synthesizer.supervisor import Supervisor
from voiceagent_tts.synthesizer.word_policy import Source
from voiceagent_tts.synthesizer.worker_client import WorkerClient, WorkerSpec
from voiceagent_tts.text.words import split_words

WORDS = split_words("Hello there, everybody.")
SILENCE = bytes(3840)
BROKEN = WorkerSpec("no-such-aligner")


@pytest.fixture
async def aligners() -> AsyncIterator[Aligners]:
    """Two processes of the online aligner."""
    supervisors = [Supervisor(WorkerSpec("online")) for _ in range(2)]
    started = Aligners({Source.ONLINE: supervisors})
    await started.start()
    yield started
    await started.close()


def watched(follower: Follower) -> "asyncio.Queue[AlignEvent]":
    """What a follower is told."""
    answers: asyncio.Queue[AlignEvent] = asyncio.Queue()
    follower.on_answer = lambda source, event: answers.put_nowait(event)
    return answers


def workers(aligners: Aligners) -> list[WorkerClient]:
    """Those that run now."""
    supervisors = aligners.supervisors.values()
    return [supervisor.worker for supervisor in supervisors if supervisor.worker is not None]


async def test_a_context_is_followed_to_its_end(aligners: Aligners) -> None:
    """Words and sound go to one process, which tells every word and then `Done`."""
    (follower,) = aligners.followers()
    assert follower.source is Source.ONLINE
    answers = watched(follower)
    follower.follow("en", "v", WORDS[:1])
    follower.expect(WORDS[1:])
    for start in (0, 1920):
        follower.listen(AudioChunk(start, SILENCE))
    follower.end_segment(WORDS[-1].char_end, 3840)
    follower.finish()
    told: list[AlignEvent] = []
    while not isinstance(told[-1] if told else None, Done):
        told.append(await answers.get())
    aligned = [event for event in told if isinstance(event, Aligned)]
    assert [word.word for event in aligned for word in event.words] == WORDS
    assert aligned[1].end_sample == 3840
    assert follower.worst_lag_s > 0
    assert not any(worker.rows_used for worker in workers(aligners))


async def test_contexts_are_spread(aligners: Aligners) -> None:
    """Contexts take turns over the processes, and leave no row behind when they close."""
    followers = [aligners.followers()[0] for _ in range(6)]
    assert [worker.rows_used for worker in workers(aligners)] == [3, 3]
    for follower in followers[:3]:
        follower.follow("en", "v", WORDS)
    for follower in followers:
        follower.close()
        follower.close()
    await until(lambda: not any(w.rows_used for w in workers(aligners)), "all rows are free")


async def test_a_dead_aligner_is_told_and_not_waited_for(aligners: Aligners) -> None:
    """Who was followed learns of the end; a new context gets another process, or none."""
    followers = [aligners.followers()[0] for _ in range(2)]
    answers = [watched(follower) for follower in followers]
    for follower in followers:
        follower.follow("en", "v", WORDS)
    for worker in workers(aligners):
        os.kill(worker.pid, signal.SIGKILL)
    for each in answers:
        assert isinstance(await each.get(), Failed)
    assert aligners.followers() == []
    followers[0].listen(AudioChunk(0, SILENCE))
    followers[0].finish()
    await until(lambda: len(workers(aligners)) == 2, "both are replaced")
    assert len(aligners.followers()) == 1
    assert [supervisor.restarts for supervisor in aligners.supervisors.values()] == [1, 1]


async def test_an_aligner_that_does_not_answer_is_left(
    aligners: Aligners, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sound does not pile up before a process that hangs: its context fails there, once."""
    monkeypatch.setitem(module._PATIENCE_S, Source.ONLINE, 0.0)
    (follower,) = aligners.followers()
    answers = watched(follower)
    stopped = next(worker for worker in workers(aligners) if worker.rows_used)
    os.kill(stopped.pid, signal.SIGSTOP)
    try:
        follower.follow("en", "v", WORDS)
        for start in range(0, 5 * 1920, 1920):
            follower.listen(AudioChunk(start, SILENCE))
            await asyncio.sleep(0)
        assert isinstance(answers.get_nowait(), Failed)
        assert answers.empty()
    finally:
        os.kill(stopped.pid, signal.SIGCONT)
    await until(lambda: stopped.rows_used == 0, "it is forgotten there")


async def test_what_cannot_start_is_left_out() -> None:
    """An aligner that nobody insists on does not keep a server from starting."""
    aligners = Aligners(
        {Source.ONLINE: [Supervisor(WorkerSpec("online"))], Source.FORCED: [Supervisor(BROKEN)]}
    )
    await aligners.start()
    try:
        assert [follower.source for follower in aligners.followers()] == [Source.ONLINE]
        assert list(aligners.supervisors) == ["online-0"]
    finally:
        await aligners.close()


async def test_what_was_asked_for_must_start() -> None:
    """An aligner that was asked for by name ends the start with its reason."""
    aligners = Aligners({Source.FORCED: [Supervisor(BROKEN)]}, is_required=True)
    with pytest.raises(EngineError, match="ended with status 2"):
        await aligners.start()
    await aligners.close()
